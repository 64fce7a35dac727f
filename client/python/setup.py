"""Adds to the build what is generated: the description of the node daemon's protocol.

It is a FileDescriptorSet, which every version of the protobuf library can read, where generated
Python code would tie the package to one."""
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PROTO_FOLDER = Path(__file__).resolve().parents[2] / "proto"


def protoc() -> list[str]:
    """The compiler: of grpcio-tools, or the system's."""
    try:
        import grpc_tools  # noqa: F401
        return [sys.executable, "-m", "grpc_tools.protoc"]
    except ImportError:
        program = shutil.which("protoc")
        if program is None:
            sys.exit("sluice-kv: needs grpcio-tools or protoc (Debian: protobuf-compiler) to build")
        return [program]


class BuildWithProtocol(build_py):
    """Copies the modules, and generates node.binpb beside them."""

    def run(self) -> None:
        super().run()
        target = Path(self.build_lib) / "sluice_kv" / "node.binpb"
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([*protoc(), f"--proto_path={PROTO_FOLDER}", f"--descriptor_set_out={target}",
                        "sluice/v1/node.proto"], check=True)


setup(cmdclass={"build_py": BuildWithProtocol})
