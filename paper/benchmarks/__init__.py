"""Benchmarks, run by ``python -m paper benchmark NAME``: the module of a name has a command of that name."""

PAGES = {  # write tables into RESULTS.md
    "foundation": "Time fits, l1_svd, redraws and imports; list total sensitivities.",
    "certificates": "Time certificates, and compare them with the errors that are found.",
    "selection": "Time the strategies against plain NumPy versions.",
    "scale": "Time passes over 20 million rows of Parquet.",
    "training": "Train on subsets of MNIST, and time the loop against a bare one.",
    "growth": "Measure how time grows with rows and columns.",
    "kernels": "Measure what compiled loops would gain.",
    "speed": "Measure whole commands against scans.",
    "computations": "Measure long computations beside others.",
    "load": "Draw and redraw for long, and watch the memory.",
}
BENCHMARKS = PAGES | {
    "attacks": "Attack certificates of random problems of every kind.",
    "adaptive-study": "Choose the settings of the adaptive coreset on validation data.",
    "beat-random": "Compare model-aware coresets with uniform redraws.",
    "elsewhere": "Try the defaults on data that nothing was chosen on.",
    "experiments-page": "Write the tables of docs/experiments.md.",
    "gate": "Compare ratios of times with the committed ones.",
    "geometry": "Time k-center and facility location on many rows.",
    "label-noise": "Train on wrong labels.",
    "recorder-cost": "Time draws by the norms that training saw.",
    "models": "Fit linear models, k-means and trees on subsets.",
    "peers": "Compare with other packages.",
}
