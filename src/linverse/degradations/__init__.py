"""Linear degradations y_raw = Hx + σv and their measurements.

noise        white noise, noise maps, noise of any known covariance
masks        missing pixels, Bayer patterns
blurs        Gaussian, defocus, camera shake, any kernel
resolution   ×n super-resolution
operators    any linear H, given by a function and its adjoint
tasks        named presets: "box", "gauss:std=1.2"
"""

from linverse.degradations.base import Degradation, ImageLike, Size, as_image, as_tensor
from linverse.degradations.blurs import Blur, Convolution, Defocus, GaussianBlur, MotionBlur
from linverse.degradations.masks import Box, Demosaicing, HalfMask, Inpainting, Masking, RandomPixels, read_mask
from linverse.degradations.noise import ColouredNoise, Denoising, PowerLawNoise
from linverse.degradations.resolution import SuperResolution

__all__ = [
    "Blur",
    "Box",
    "ColouredNoise",
    "Convolution",
    "Defocus",
    "Degradation",
    "Demosaicing",
    "Denoising",
    "GaussianBlur",
    "HalfMask",
    "ImageLike",
    "Inpainting",
    "Masking",
    "MotionBlur",
    "PowerLawNoise",
    "RandomPixels",
    "Size",
    "SuperResolution",
    "as_image",
    "as_tensor",
    "read_mask",
]
