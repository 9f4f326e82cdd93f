"""The web page: the same questions and the same library calls as the commands, in a browser (`linverse studio`).

`kinds` and `uploads` read what a visitor says and hands in, `models` holds the models, `visitors` what is kept of each visitor, `work`
calls the library, `markup` and `pack` show and hand out what comes back; `callbacks` and `page` are the only files that know gradio.
"""
