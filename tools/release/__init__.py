"""`make release`: builds, checks and tries everything that a release uploads.

    targets.py       the platforms that get a wheel
    source.py        the source archive, and the time that all archives carry
    wheels.py        source archive -> wheels, with Zig's C compiler
    layout.py        names of files in a wheel
    licences.py      the licence of each package that comes with it
    sbom.py          the list of parts inside each wheel (PEP 770)
    machine_code.py  what a macOS kernel needs, read from its headers
    checks.py        twine, check-wheel-contents, abi3audit, auditwheel; sizes, the description, the project's addresses
    trial.py         each wheel that can run here: an empty environment, and the demo
    emulated.py      a wheel for another processor: its kernel under qemu-user, beside the fallback
    __main__.py      does it all twice, and compares the bytes

A well-kept tool does each step that has one. The extra `release` of setup.cfg names the tools, and
requirements/release.txt fixes their versions, because the bytes depend on the compiler and on setuptools.
"""
