"""One preset a model. `linverse train NAME` trains it; options override its fields."""

from __future__ import annotations

from dataclasses import replace

from linverse.models.denoiser import DenoiserConfig
from linverse.models.energies.learned import EnergyConfig
from linverse.models.losses import LossConfig
from linverse.models.networks.unet import UNetConfig
from linverse.training.config import OptimiserConfig, TrainConfig
from linverse.training.covariances import (
    ISOTROPIC,
    BayerPatterns,
    Boxes,
    BoxSuperResolution,
    CentreBox,
    Component,
    DefocusBlurs,
    GaussianBlurs,
    HalfMasks,
    Isotropic,
    Mixture,
    MotionBlurs,
    Patches,
    RandomKernels,
    RandomPixelMasks,
    SmoothSpectra,
    Strokes,
)

# --- the paper's models (table "SongUNet Architecture Summary", training tables of appendix C) -----------------------------------

PAPER_BACKBONE = UNetConfig()
PAPER_OPTIMISER = OptimiserConfig(rate=2e-4, betas=(0.9, 0.999), warmup=1000, decay="inverse-sqrt", ema=0.9999)
PAPER_COVARIANCES = Mixture(
    (
        Component(0.25, CentreBox()),
        Component(0.25, HalfMasks()),
        Component(0.25, GaussianBlurs()),
        Component(0.25, BoxSuperResolution(4)),
    )
)


def paper_energy(shape: tuple[int, int, int], backbone: UNetConfig, bases: tuple[str, ...]) -> EnergyConfig:
    """The paper's energy: inner product, two-branch embedding, variances in [1e-9, 1e3]."""
    return EnergyConfig(
        shape, 1e-9, 1e3, bases, parameterisation="inner-product", embedding="two-branch", backbone=backbone
    )


CELEBA = TrainConfig(
    data="folder:celeba",
    model=paper_energy((3, 64, 64), PAPER_BACKBONE, ("spatial", "fourier", "block-dct-4")),
    covariances=PAPER_COVARIANCES,
    loss=LossConfig(cov_weight=None),
    optimiser=PAPER_OPTIMISER,
    batch=128,
    steps=400_000,
    flips=True,
)

AFHQ_COVARIANCES = Mixture((Component(0.5, CentreBox(20, 50)), Component(0.5, HalfMasks("horizontal", 20, 50))))

MNIST_PAPER_BACKBONE = replace(PAPER_BACKBONE, multipliers=(1, 2, 2), attention_levels=(1,))

# --- our models, for a CPU ------------------------------------------------------------------------------------------------------

SMALL_BACKBONE = UNetConfig(
    channels=48, multipliers=(1, 2), blocks=1, embedding=64, stem=2, stem_channels=16, style="compact", middle=4
)
SMALL_ENERGY = EnergyConfig(
    (1, 28, 28),
    bases=("spatial", "fourier", "block-dct-4"),
    parameterisation="residual",
    rank=128,
    backbone=replace(SMALL_BACKBONE, bounded_gains=True, bounded_inputs=True),
    linear_views=True,
    level=True,
    gain=True,
)

# found by short runs side by side: docs/training-notes.md
SMALL_LOSS = LossConfig(
    cov_weight=0.3,  # 1.0 and averages over the image held the means back: docs/training-notes.md
    final_image_weight=0.02,
    mean_power=1.0,
    variance_weight=0.005,
    pixel_weight=0.1,
)
SMALL_OPTIMISER = OptimiserConfig(
    kind="muon", rate=3e-3, muon_rate=0.02, muon_decay=0.05, warmup=200, clip=5.0, ema=0.9995
)

FASHION_COVARIANCES = Mixture(
    (
        Component(0.08, Isotropic()),
        Component(0.10, Isotropic(1e-6, 0.1)),  # densities are decided there
        Component(0.12, CentreBox()),
        Component(0.07, HalfMasks()),
        Component(0.09, Patches()),
        Component(0.12, RandomPixelMasks()),
        Component(0.15, GaussianBlurs(loudest=1.0)),
        Component(0.10, BoxSuperResolution(4)),
        Component(0.07, SmoothSpectra()),
        Component(0.10, RandomKernels()),
    ),
    clamped=0.5,
)

FASHION = TrainConfig(
    data="fashion-mnist",
    model=SMALL_ENERGY,
    covariances=FASHION_COVARIANCES,
    loss=SMALL_LOSS,
    optimiser=SMALL_OPTIMISER,
    steps=16_000,
    keep_every=4_000,
)

FASHION_DENOISER = DenoiserConfig((1, 28, 28), backbone=SMALL_BACKBONE)

FASHION_SCORE = TrainConfig(
    data="fashion-mnist",
    model=FASHION_DENOISER,
    covariances=ISOTROPIC,
    loss=replace(SMALL_LOSS, objective="single"),
    optimiser=SMALL_OPTIMISER,
    steps=4_000,
)

FASHION_PALETTE = replace(FASHION_SCORE, steps=3_000)

MNIST = TrainConfig(
    data="mnist",
    model=replace(SMALL_ENERGY, bases=("spatial",)),
    covariances=Mixture(
        (
            Component(0.35, Patches()),
            Component(0.32, RandomPixelMasks()),
            Component(0.08, Isotropic()),
            Component(0.25, Isotropic(1e-6, 0.1)),  # densities are decided there
        ),
        clamped=0.5,
    ),
    loss=SMALL_LOSS,
    optimiser=SMALL_OPTIMISER,
    batch=40,  # smaller batches learn more in the same time
    steps=12_000,
)

DIGITS = TrainConfig(
    data="digits",
    model=EnergyConfig(
        (1, 8, 8),
        1e-4,
        1e2,
        ("spatial", "fourier", "block-dct-4"),
        parameterisation="residual",
        rank=24,
        backbone=replace(
            SMALL_BACKBONE, stem=1, channels=32, middle=2, embedding=32, bounded_gains=True, bounded_inputs=True
        ),
    ),
    covariances=replace(
        FASHION_COVARIANCES,
        components=tuple(
            Component(c.weight, Patches((1, 2, 4, 8)) if isinstance(c.distribution, Patches) else c.distribution)
            for c in FASHION_COVARIANCES.components
        ),
    ),
    loss=SMALL_LOSS,
    optimiser=replace(SMALL_OPTIMISER, warmup=50, ema=0.995),
    steps=1200,
    batch=64,
)

# --- photographs, of any size -----------------------------------------------------------------------------------------------------

PHOTO_BACKBONE = UNetConfig(
    channels=48,
    multipliers=(1, 2, 2),
    blocks=3,
    embedding=64,
    stem=2,
    stem_channels=0,  # 0.3 dB better at equal time than with layers at full resolution: docs/training-notes.md
    style="compact",
    middle=4,
    bounded_gains=True,
    bounded_inputs=True,
    bounded_levels=True,
)
PHOTO_COVARIANCES = Mixture(
    (
        Component(0.08, Isotropic()),
        Component(0.40, Isotropic(3e-5, 0.3)),  # where there is most to learn
        Component(0.14, Isotropic(1e-6, 3e-4)),  # where code lengths are decided
        Component(0.05, Boxes(hidden=0.5)),
        Component(0.07, Strokes(hidden=0.5)),
        Component(0.06, RandomPixelMasks(hidden=0.5)),
        Component(0.03, Patches((1, 2, 4, 8, 16))),
        Component(0.04, BayerPatterns(hidden=0.5)),
        Component(0.06, GaussianBlurs(loudest=1.0)),
        Component(0.06, GaussianBlurs(loudest=1.0, boundary="reflecting")),
        Component(0.03, MotionBlurs()),
        Component(0.04, DefocusBlurs()),
        Component(0.02, SmoothSpectra()),
        Component(0.02, RandomKernels()),
        Component(0.05, BoxSuperResolution(2, hidden=0.5)),
        Component(0.05, BoxSuperResolution(4, hidden=0.5)),
    ),
    clamped=0.5,
)
PHOTO_ENERGY = EnergyConfig(
    (3, None, None),
    bases=("spatial", "fourier", "dct", "block-dct-2", "block-dct-4"),
    parameterisation="spectral",
    backbone=PHOTO_BACKBONE,
    level=True,
    gain=True,
)
PHOTOGRAPHS = TrainConfig(
    data="photographs",
    model=PHOTO_ENERGY,
    covariances=PHOTO_COVARIANCES,
    loss=replace(
        SMALL_LOSS,
        cov_weight=0.1,
        image_weight=0.0003,  # its gradient works against A-DSM: more cost Bayer patterns a decibel (docs/training-notes.md)
        final_image_weight=None,
        variance_weight=0.001,
        image_outliers=5.0,
        variance_floor=0.1,
        learned_weight=0.1,
        outliers=2.0,
    ),
    optimiser=replace(SMALL_OPTIMISER, warmup=50, decay_share=0.65, ema=0.998),
    batch=12,
    crops=(48, 48, 64),
    steps=6_000,
    isotropic_first=1_700,
)

# --- CIFAR-10: 32×32 colour, the paper's families, the photographs' network and loss -----------------------------------------------

CIFAR_COVARIANCES = Mixture(
    (
        Component(0.12, Isotropic()),
        Component(0.30, Isotropic(1e-6, 0.3)),  # where most of the code length is decided
        Component(0.16, CentreBox()),
        Component(0.10, HalfMasks()),
        Component(0.18, GaussianBlurs(loudest=1.0)),
        Component(0.14, BoxSuperResolution(4)),
    ),
    clamped=0.5,
)
CIFAR_ENERGY = EnergyConfig(
    (3, 32, 32),
    bases=("spatial", "fourier", "block-dct-4"),
    parameterisation="spectral",  # against 128 components after 100 steps each: docs/training-notes.md
    backbone=PHOTO_BACKBONE,
    level=True,
    gain=True,
)
CIFAR = TrainConfig(
    data="cifar10",
    model=CIFAR_ENERGY,
    covariances=CIFAR_COVARIANCES,
    loss=PHOTOGRAPHS.loss,
    optimiser=replace(SMALL_OPTIMISER, rate=1.5e-3, muon_rate=0.01, warmup=50, decay_share=0.8, ema=0.998),
    batch=24,
    steps=4_000,
    flips=True,
    refit_base=True,
    keep_every=2_000,
    reference_images=0,  # nobody says that CIFAR's may be passed on
)

# --- 64×64 colour in our form, beside the paper's: the same data, families and steps, a base that knows pictures, a wider network ------

OURS_64 = TrainConfig(
    data="folder:celeba",
    model=replace(
        CIFAR_ENERGY,
        shape=(3, 64, 64),
        backbone=replace(PHOTO_BACKBONE, channels=128, blocks=2, embedding=256, stem_channels=48, middle=8),
    ),
    covariances=CIFAR_COVARIANCES,
    loss=PHOTOGRAPHS.loss,
    optimiser=replace(SMALL_OPTIMISER, warmup=1000, ema=0.9999),
    batch=128,
    steps=400_000,
    flips=True,
    precision="bf16",
)

PRESETS: dict[str, tuple[str, TrainConfig]] = {
    "digits": ("8×8 digits of scikit-learn, in minutes", DIGITS),
    "fashion-mnist": ("the all-round model: masks, patches, blurs, ×4 super-resolution", FASHION),
    "fashion-mnist-single": (
        "the same without the covariance score (the paper's ablation)",
        replace(
            FASHION,
            loss=replace(FASHION.loss, objective="single"),
            optimiser=replace(SMALL_OPTIMISER, clip=1.0),
            steps=10_000,
        ),
    ),
    "fashion-mnist-score": ("an isotropic denoiser, for the baselines", FASHION_SCORE),
    "fashion-mnist-palette-inpainting": (
        "a conditional denoiser for 20×20 boxes",
        replace(FASHION_PALETTE, model=replace(FASHION_DENOISER, condition_channels=2), condition="inpainting"),
    ),
    "fashion-mnist-palette-deblurring": (
        "a conditional denoiser for Gaussian blur",
        replace(FASHION_PALETTE, model=replace(FASHION_DENOISER, condition_channels=1), condition="deblurring"),
    ),
    "photographs": (
        "colour photographs of any size: masks, blurs, super-resolution, colour filter arrays",
        PHOTOGRAPHS,
    ),
    "photographs-grey": (
        "grey pictures of any size; start it --from photographs",
        replace(
            PHOTOGRAPHS,
            model=replace(PHOTO_ENERGY, shape=(1, None, None)),
            covariances=replace(
                PHOTO_COVARIANCES,
                components=tuple(
                    c for c in PHOTO_COVARIANCES.components if not isinstance(c.distribution, BayerPatterns)
                ),
            ),
            optimiser=replace(PHOTOGRAPHS.optimiser, rate=1.5e-3, muon_rate=0.01, decay_share=0.8, ema=0.99),
            isotropic_first=0,  # what that teaches comes with the colour model
            steps=1_500,
        ),
    ),
    "cifar10": ("32×32 colour images: the paper's covariances; start it --from photographs", CIFAR),
    "cifar10-score": (
        "an isotropic denoiser of 32×32 colour images, for the baselines",
        replace(
            CIFAR,
            model=DenoiserConfig(
                (3, 32, 32),
                backbone=replace(PHOTO_BACKBONE, bounded_gains=False, bounded_inputs=False, bounded_levels=False),
            ),
            covariances=ISOTROPIC,
            loss=replace(SMALL_LOSS, objective="single"),
            optimiser=SMALL_OPTIMISER,  # from nothing
            refit_base=False,
            steps=6_000,
            keep_every=0,
        ),
    ),
    "mnist": ("the any-order model: independent variances on patches, random masks", MNIST),
    "mnist-paper": (
        "the paper's MNIST model",
        replace(
            CELEBA,
            data="mnist",
            model=paper_energy((1, 28, 28), MNIST_PAPER_BACKBONE, ("spatial",)),
            covariances=Mixture((Component(1.0, Patches()),)),
            flips=False,
        ),
    ),
    "celeba-64": ("the paper's CelebA model (needs GPUs)", CELEBA),
    "celeba-64-ours": ("CelebA in our form: a base that knows pictures (needs a GPU)", OURS_64),
    "imagenet-64": ("the paper's ImageNet64 model (needs GPUs)", replace(CELEBA, data="npz:imagenet64")),
    "imagenet-64-ours": (
        "ImageNet64 in our form (needs a GPU)",
        replace(OURS_64, data="npz:imagenet64"),
    ),
    "afhq-192": (
        "the paper's AFHQ model, 192×192 (needs GPUs)",
        replace(
            CELEBA,
            data="folder:afhq",
            model=paper_energy((3, 192, 192), replace(PAPER_BACKBONE, attention_levels=()), ("spatial",)),
            covariances=AFHQ_COVARIANCES,
            batch=64,
            steps=100_000,
        ),
    ),
}
