"""linverse studio as a Hugging Face Space: `python app.py` serves the page at the port that the Space gives.

LINVERSE_MODEL names a model that is shown first, before the bundled ones.
"""

import os

from linverse.store.choice import main_models
from linverse.studio.models import Models
from linverse.studio.page import launch

if __name__ == "__main__":
    named = os.environ.get("LINVERSE_MODEL")
    models = Models([*([named] if named else []), *main_models()])
    launch(models, host="0.0.0.0", port=int(os.environ.get("GRADIO_SERVER_PORT", "7860")))
