"""Beside other libraries: their operators, denoisers and samplers with our models, and ours with theirs.

interop.deepinv      our models as deepinv's Denoiser and Reconstructor; its Physics as our Degradation and back   linverse[interop]
interop.azula        an energy as azula's Denoiser, with its variance                                              linverse[interop]
interop.denoisers    denoisers of EDM, deepinv, azula and diffusers as the priors of our baselines                 nothing more
"""
