"""Which features the Fréchet distance sees, what it is then called, and whether all that an evaluation measures can be measured.

The features' name is part of the distance's: "Fréchet-VGG16"; "FID" is that of the 2048 features of Inception, which the user supplies.
"""

from __future__ import annotations

from linverse.evaluation.contenders import import_function
from linverse.evaluation.plan import EvaluationSetting, Plan
from linverse.metrics import METRICS, Features, has_weights, network_features, pixel_features
from linverse.metrics.frechet import INCEPTION_FEATURES


def choose_features(plan: Plan) -> Features:
    """As the setting says; "auto" is VGG16 where its weights are installed and the images are large enough, else pixels."""
    return features_for(plan.setting, (plan.truth.shape[2], plan.truth.shape[3]))


def features_for(setting: EvaluationSetting, size: tuple[int, int]) -> Features:
    """The features of a setting for images of a size."""
    if ":" in setting.features:
        return users_features(setting.features)
    if setting.features == "alexnet":
        return network_features("alexnet")
    if setting.features == "vgg16" or (setting.features == "auto" and has_weights() and min(size) >= 16):
        return network_features("vgg16")
    return pixel_features()


def users_features(text: str) -> Features:
    """`package.module:function`, of images [B, C, H, W] in [0, 1] to [B, D]; its attribute `name`, or its own, names the result."""
    module, _, attribute = text.partition(":")
    function = import_function(module, attribute, "features")
    return Features(str(getattr(function, "name", attribute)), function)


def frechet_name(features: Features, dim: int) -> str:
    """FID of Inception's 2048 features, and of nothing else."""
    if not features.name.lower().startswith("inception"):
        return f"Fréchet-{features.name}"
    if dim != INCEPTION_FEATURES:
        raise ValueError(
            f"the features {features.name} have {dim} dimensions; FID is defined on Inception's {INCEPTION_FEATURES}. "
            "Give them another name"
        )
    return "FID"


def check_measures(plan: Plan) -> None:
    """Try every metric and the features on one image: what is not installed, or too small for them, is told before the work."""
    one = plan.truth[:1]
    for name in plan.setting.metrics:
        METRICS[name].function(one, one)
    features = choose_features(plan)
    frechet_name(features, features(one).shape[1])
