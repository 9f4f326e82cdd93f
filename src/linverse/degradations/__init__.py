"""Linear degradations y_raw = Hx + σv and their measurements.

noise        white noise, noise maps, noise of any known covariance
masks        missing pixels, Bayer patterns
blurs        Gaussian, defocus, camera shake, any kernel
resolution   ×n super-resolution
mri          lines of k-space
operators    any linear H, given by a function and its adjoint; several of them stacked, or one after the other
scanners     tomography, compressed sensing
colour       grey pictures of coloured scenes
varying_blur blurs that change across the picture
tasks        named presets: "box", "gauss:std=1.2"
"""

from linverse.degradations.base import Degradation, ImageLike, Size, as_image, as_tensor
from linverse.degradations.blurs import Blur, Convolution, Defocus, GaussianBlur, MotionBlur
from linverse.degradations.colour import Decolorise
from linverse.degradations.masks import Box, Demosaicing, HalfMask, Inpainting, Masking, RandomPixels, read_mask
from linverse.degradations.mri import MRI
from linverse.degradations.noise import ColouredNoise, Denoising, PowerLawNoise
from linverse.degradations.operators import Composed, GeneralOperator, LinearOperator, Stacked
from linverse.degradations.resolution import SuperResolution
from linverse.degradations.scanners import CompressedSensing, Tomography
from linverse.degradations.varying_blur import VaryingBlur

__all__ = [
    "MRI",
    "Blur",
    "Box",
    "ColouredNoise",
    "Composed",
    "CompressedSensing",
    "Convolution",
    "Decolorise",
    "Defocus",
    "Degradation",
    "Demosaicing",
    "Denoising",
    "GaussianBlur",
    "GeneralOperator",
    "HalfMask",
    "ImageLike",
    "Inpainting",
    "LinearOperator",
    "Masking",
    "MotionBlur",
    "PowerLawNoise",
    "RandomPixels",
    "Size",
    "Stacked",
    "SuperResolution",
    "Tomography",
    "VaryingBlur",
    "as_image",
    "as_tensor",
    "read_mask",
]
