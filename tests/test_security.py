"""Nothing in the package can run foreign code: read off the source, by a checker that is itself tested."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import coresift

ROOT = Path(coresift.__file__).parent

_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "xmlrpc", "telnetlib"}
_CALLS = {
    **dict.fromkeys(("eval", "exec", "compile", "__import__"), "runs code"),
    **dict.fromkeys(("os.system", "os.popen", "pty.spawn"), "runs a shell"),
    "yaml.load": "builds any object",
    "yaml.unsafe_load": "builds any object",
    "tempfile.mktemp": "names a file that another may make first",
    "torch.jit.load": "runs code",
    "pandas.read_pickle": "runs code",
    "pd.read_pickle": "runs code",
}
_XML = "xml.etree, minidom and sax expand entities"


def complaints(source: str) -> Iterator[str]:
    """What of a module could run foreign code, fill a disk, or write outside of its target."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            for name in names:
                if name.partition(".")[0] in _MODULES:
                    yield f"line {node.lineno}: imports {name}"
                if name.startswith("xml."):
                    yield f"line {node.lineno}: {_XML}"
        elif isinstance(node, ast.Call):
            yield from _of_call(node)


def _of_call(node: ast.Call) -> Iterator[str]:
    name = ast.unparse(node.func)
    last = name.rpartition(".")[2]
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    if name in _CALLS and not (name == "exec" and ast.unparse(node.args[0]) == "''"):  # nothing is not foreign code
        yield f"line {node.lineno}: {name} {_CALLS[name]}"
    for word, value in (("allow_pickle", False), ("weights_only", True)):
        if word in keywords and getattr(keywords[word], "value", None) is not value:
            yield f"line {node.lineno}: {name}({word}={ast.unparse(keywords[word])})"
    if (
        name in ("np.load", "numpy.load", "np.lib.format.read_array", "npy.read_array")
        and "allow_pickle" not in keywords
    ):
        yield f"line {node.lineno}: {name} without allow_pickle=False"
    if name == "torch.load" and "weights_only" not in keywords:
        yield f"line {node.lineno}: torch.load without weights_only=True"
    if "shell" in keywords and getattr(keywords["shell"], "value", None) is not False:
        yield f"line {node.lineno}: {name}(shell=...)"
    if last in ("extractall", "extract", "unpack_archive") and "filter" not in keywords:
        yield f"line {node.lineno}: {name} without a filter"
    if last == "retrieve" and not (len(node.args) > 1 or "known_hash" in keywords):
        yield f"line {node.lineno}: {name} without a checksum"
    if last == "retrieve" and any(isinstance(v, ast.Constant) and v.value is None for v in node.args[1:2]):
        yield f"line {node.lineno}: {name} without a checksum"
    if last == "Environment" and getattr(keywords.get("autoescape"), "value", None) is not True:
        yield f"line {node.lineno}: {name} without autoescape=True"
    if "verify" in keywords and getattr(keywords["verify"], "value", None) is False:
        yield f"line {node.lineno}: {name}(verify=False)"


FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


@pytest.mark.parametrize("file", FILES)
def test_no_module_can_run_foreign_code(file: str) -> None:
    assert list(complaints((ROOT / file).read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from joblib import load",
        "import xml.etree.ElementTree",
        "eval(text)",
        "exec(text)",
        "exec('print()')",
        "os.system(text)",
        "subprocess.run(text, shell=True)",
        "subprocess.run(text, shell=flag)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.save(path, array, allow_pickle=flag)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "yaml.load(text)",
        "tar.extractall(path)",
        "shutil.unpack_archive(path)",
        "pooch.retrieve(url, None)",
        "pooch.retrieve(url)",
        "jinja2.Environment(loader=x)",
        "requests.get(url, verify=False)",
    ],
)
def test_the_checker_sees(line: str) -> None:
    assert len(list(complaints(line))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "np.load(path, allow_pickle=False)",
        "torch.load(path, weights_only=True)",
        "model.eval()",
        "re.compile(text)",
        "tar.extractall(path, filter='data')",
        "pooch.retrieve(url, checksum)",
        "jinja2.Environment(autoescape=True)",
        "subprocess.run(['ls'])",
    ],
)
def test_the_checker_lets_pass(line: str) -> None:
    assert list(complaints(line)) == []


def test_every_download_has_a_checksum() -> None:
    from coresift.data.datasets import _NAMED

    downloads = [file for known in _NAMED.values() for file in known.downloads]
    assert len(downloads) >= 7
    for file in downloads:
        kind, _, digest = file.checksum.partition(":")
        assert len(digest) == {"md5": 32, "sha256": 64}[kind]
        assert set(digest) <= set("0123456789abcdef")
        assert all(url.startswith("https://") for url in file.urls)
