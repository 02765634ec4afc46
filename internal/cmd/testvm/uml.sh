#!/bin/sh
# A user-mode Linux of Debian's newest sources, into the directory $1 where testvm looks for one (make uml). That
# of Debian's package is older in a stable release: since Linux 6.16 processes are watched with seccomp, not ptrace, which
# halves what a system call costs, and since 6.19 there may be more than one CPU, so that there are cpusets.
# Nothing is installed but what builds a kernel; the machine's own lists of packages stay as they are.
set -eu
dir=$(realpath -m "$1")
part=$dir.part mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
config=$(cd "$(dirname "$0")" && pwd)/uml.config
for program in gcc make flex bison bc xz; do
	command -v $program >/dev/null && continue
	apt-get update -qq && apt-get install -qq -y --no-install-recommends gcc libc6-dev make flex bison bc xz-utils
	break
done
rm -rf "$part"
mkdir -p "$part/apt/lists/partial" "$part/apt/cache/archives/partial"
cd "$part"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >apt/sources.list
apt="-qq -o APT::Sandbox::User=root -o Dir::Etc::SourceList=$part/apt/sources.list -o Dir::Etc::SourceParts=/dev/null
	-o Dir::State::Lists=$part/apt/lists -o Dir::Cache=$part/apt/cache"
apt-get $apt update
source=$(apt-cache $apt depends linux-source | sed -n 's/^ *Depends: *//p')
echo "getting and building $source"
apt-get $apt download "$source"
dpkg-deb --fsys-tarfile "$source"_*.deb | tar xO --wildcards "*/$source.tar.xz" | tar xJ
cd "$source"
{
	make ARCH=um defconfig
	./scripts/kconfig/merge_config.sh -m .config "$config"
	make ARCH=um olddefconfig
} >../log
grep -v '^#' "$config" | while read -r line; do
	case $line in
	*=n) ;;
	*) grep -qx "$line" .config || { echo "missing: $line in the configuration of $source" >&2; exit 1; } ;;
	esac
done
make ARCH=um -j"$(nproc)" linux >>../log
version=$(make -s ARCH=um kernelrelease)
cd ..
mkdir -p new/usr/bin "new/usr/lib/uml/modules/$version"
cp "$source/linux" new/usr/bin/linux.uml
cp "$source/modules.builtin" "new/usr/lib/uml/modules/$version"
rm -rf "$dir"
mv new "$dir"
cd /
rm -rf "$part"
