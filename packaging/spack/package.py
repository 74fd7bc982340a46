# The recipe for Spack. In a repository of yours (spack repo create mine; spack repo add mine), as
# packages/unisono/package.py; the archive of the source goes into the current folder or a mirror.
# The build fetches crates from crates.io.

import os

from spack_repo.builtin.build_systems.generic import Package

from spack.package import *


class Unisono(Package):
    """Keeps parallel programs in step on machines they have to share: gangs, barriers, one-sided
    communication for MPI programs, shares of a link, and events with deadlines."""

    manual_download = True
    url = f"file://{os.getcwd()}/unisono-0.2.0.tar.gz"

    license("Apache-2.0 OR MIT")

    version("0.2.0")  # `spack checksum` adds that of your archive

    depends_on("c", type="build")
    depends_on("rust@1.95:", type="build")
    depends_on("python@3.9:", type=("build", "run"))

    def install(self, spec, prefix):
        cargo = which("cargo", required=True)
        cargo("build", "--release", "--locked")
        cargo("xtask", "install", "--prefix", prefix)

    def setup_run_environment(self, env):
        # `cargo xtask install` cannot know the Python that Spack runs
        env.prepend_path("PYTHONPATH", self.prefix.lib.join("python3", "dist-packages"))

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        Executable(self.prefix.bin.unisono)("doctor", "--without-compiling")
