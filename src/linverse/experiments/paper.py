"""The paper, item by item: each of its tables and figures, the experiment that repeats it, and with which models.

An item is an experiment with some of its options set; its record and picture bear the item's name. An item whose models are not there
(bundled, or given in their place) is left out, with a word. A record is current if it was made of the same options and the same weights.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from linverse.experiments.framework import experiment_options, model_files, named_models


@dataclass(frozen=True)
class PaperItem:
    """`source` is where it stands in the paper; `options` are those of the experiment that differ from their defaults."""

    name: str
    experiment: str
    title: str
    source: str
    options: dict[str, Any] = field(default_factory=dict)

    def chosen(self, instead: dict[str, str]) -> Any:
        """The experiment's options, with other models in the place of those named; None: it has none."""
        own = experiment_options(self.experiment)
        if own is None:
            return None
        options = replace(own(), **self.options)
        swapped = {key: instead[name] for key, name in named_models(asdict(options)).items() if name in instead}
        if "model" in swapped and getattr(options, "companions", None) == "":
            swapped["companions"] = options.model  # the other methods keep the networks of the model that was replaced
        return replace(options, **swapped)

    def command(self) -> str:
        """What repeats it alone."""
        return f"linverse paper --only {self.name}"


ITEMS: tuple[PaperItem, ...] = (
    PaperItem(
        "main-table",
        "solvers",
        "Inpainting and deblurring, all methods",
        "table 1 (inv_problems), figures inpainting_celeba, inpainting_box_appendix, deblurring_appendix",
    ),
    PaperItem(
        "more-tasks",
        "solvers",
        "×4 super-resolution and half masks",
        "appendix D.1.1, table celeba_merged_no_nfe, figure sr_appendix",
        {"table": "more"},
    ),
    PaperItem(
        "out-of-distribution",
        "solvers",
        "Degradations that were not trained on",
        "appendix D.1.2, tables celeba_random_vertical_merged and motion, figure motion",
        {"table": "unseen"},
    ),
    PaperItem(
        "posterior-samples",
        "posterior-samples",
        "The probabilities of posterior samples",
        "§4.1 and appendix D.3, figures p_xy_single, p_xy_general, images_sorting_general, sorted_img_imagenet_px and …_pxy",
    ),
    PaperItem("any-order", "any-order", "Any-order generation", "§4.2.1, figure autoregressive_generation"),
    PaperItem(
        "energy-guided",
        "energy-guided",
        "Digits from a few pixels, along guided paths",
        "§4.2.1, figure classification_mnist",
    ),
    PaperItem(
        "guided-boxes",
        "guided-boxes",
        "Guided paths on large boxes, and the variance they keep",
        "§4.2.1, last paragraph",
    ),
    PaperItem(
        "correctors",
        "correctors",
        "Corrector steps: ULA against MALA",
        "§4.2.2, table inv_celeba_ablation, figure comparsion_sampler_1",
    ),
    PaperItem(
        "blind", "blind", "Blind inverse problems", "§4.3 and appendix D.2, figures blind_example and blind_comparison"
    ),
    PaperItem(
        "mmse",
        "mmse",
        "One-shot denoising, dual against single",
        "appendix D.2, figures mmse_sweep and mmse_estimation",
    ),
    PaperItem(
        "gumbel", "gumbel", "Log-probabilities of all test images", "appendix D.4, figures gumbel and gumbel_imgs"
    ),
    PaperItem(
        "gsm",
        "gsm",
        "The normalisation constant where the truth is known",
        "appendix D.5, figure norm_constant",
        {"steps": 50_000},
    ),
    PaperItem("cost", "cost", "What a sample costs", "§3.3 and appendix C.4, the table of running times"),
    PaperItem(
        "covariances",
        "covariances",
        "The covariances, and paths through them",
        "figures scheme_anisotropic, gaussian_kernel, cov_mask, covariances_autoregressive",
    ),
    PaperItem(
        "large-images",
        "large-images",
        "Pictures of 192×192",
        "appendix D.1.3, tables inv_afhq and inv_afhq2, figure blind_example_afhq",
    ),
    PaperItem("measurement-design", "measurement-design", "What to measure next", "§5, left to the future"),
    PaperItem("local-geometry", "local-geometry", "Tangents and curvature of the prior", "§5, left to the future"),
    PaperItem("sliced-training", "sliced-training", "Training without a double backward", "§5, left to the future"),
    PaperItem(
        "cifar10-main-table",
        "solvers",
        "Inpainting and deblurring of CIFAR-10",
        "table 1 (inv_problems)",
        {"model": "cifar10", "data": "cifar10", "images": 64},
    ),
    PaperItem(
        "cifar10-gumbel",
        "gumbel",
        "Log-probabilities of CIFAR-10",
        "appendix D.4",
        {"model": "cifar10", "data": "cifar10"},
    ),
    PaperItem(
        "cifar10-code-length",
        "code-length",
        "Bits per dimension of CIFAR-10",
        "beyond the paper, which prints no likelihoods",
    ),
    PaperItem(
        "scale", "scale", "What training costs here, and at the paper's scale", "appendix C, tables of the training"
    ),
)


def items_named(names: tuple[str, ...]) -> list[PaperItem]:
    """The items of these names, or all."""
    known = {item.name: item for item in ITEMS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"the paper has no item {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] if names else list(ITEMS)


def missing_models(options: Any) -> list[str]:
    """The models that an item's options name and that are not there; those whose option may be None can be done without."""
    if options is None:
        return []
    found = model_files(asdict(options))
    optional = {f.name for f in fields(options) if "None" in str(f.type)}
    return [getattr(options, key) for key, digest in found.items() if digest is None and key not in optional]


def is_current(record: dict[str, Any] | None, options: Any, quick: bool) -> bool:
    """Whether a record was made of these options and of the weights as they are now, and no more quickly than asked for."""
    if record is None or record["provenance"]["quick"] != quick or "verdicts" not in record:
        return False
    wanted = {} if options is None else asdict(options)
    same = {key: _listed(value) for key, value in wanted.items()} == record["provenance"].get("options")
    return same and has_present_weights(record, options)


def has_present_weights(record: dict[str, Any], options: Any) -> bool:
    """Whether a record was made of the weights as they are now."""
    return bool(record["provenance"].get("models") == ({} if options is None else model_files(asdict(options))))


def _listed(value: Any) -> Any:
    """A value as JSON gives it back."""
    return list(value) if isinstance(value, tuple) else value
