#!/bin/sh
# Prints a command that starts Julia.  Where the machine has none, Debian 11's is unpacked into a
# folder of its own, with the libunwind it needs; nothing is installed, no root is needed.
# SPDX-License-Identifier: BSD-3-Clause
#   tests/bindings/get_julia.sh FOLDER
set -u
if [ -n "${LIBZERO_JULIA:-}" ]; then echo "$LIBZERO_JULIA"; exit 0; fi
if command -v julia >/dev/null 2>&1; then command -v julia; exit 0; fi
mkdir -p "$1" || exit 1
folder=$(cd "$1" && pwd)
command=$folder/run-julia
if [ -x "$command" ]; then echo "$command"; exit 0; fi

give_up() { echo "no julia: $1" >&2; exit 1; }
command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1 || give_up "this system has no apt-get"
mirror=/etc/apt/sources.list.d/debian.sources
[ -r $mirror ] || give_up "no $mirror to read the mirror from"

# Debian 11 from the mirror that the machine uses already: its own sources and lists.
mkdir -p "$folder/parts" "$folder/lists/partial" "$folder/packages" "$folder/root"
sed -n '1,/^$/p' $mirror | sed 's/^Suites:.*/Suites: bullseye/' >"$folder/parts/bullseye.sources"
apt() {
  tool=$1; shift
  "$tool" -q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$folder/parts" \
    -o Dir::State::lists="$folder/lists" -o Dir::Cache="$folder/cache" -o APT::Sandbox::User= "$@"
}
mkdir -p "$folder/cache/archives/partial"
apt apt-get update >&2 || give_up "Debian 11's package lists could not be fetched"
packages=$(apt apt-get install -s --no-install-recommends julia | sed -n 's/^Inst \([^ ]*\) .*/\1/p')
[ -n "$packages" ] || give_up "Debian 11's julia cannot be had beside this system's packages"
old_unwind=$(apt apt-cache madison libunwind8 | awk '{print $3; exit}')
# $packages is a list of words.
(cd "$folder/packages" && apt apt-get download $packages "libunwind8=$old_unwind") >&2 ||
  give_up "Debian 11's packages could not be fetched"
for package in "$folder"/packages/*.deb; do
  dpkg-deb -x "$package" "$folder/root" || give_up "$package could not be unpacked"
done
libraries=$folder/root/usr/lib/x86_64-linux-gnu
# Julia's links to libraries of the system, which is not in this folder.
find "$folder/root" -type l ! -exec test -e {} \; -print | while read -r link; do
  aim=$(readlink "$link")
  found=/usr/lib/x86_64-linux-gnu/${aim##*/}
  [ -e "$found" ] && ln -sf "$found" "$link"
done
cat >"$command.new" <<EOF
#!/bin/sh
# Debian 11's Julia, from its own folder.  Its libunwind also has _Unwind_Resume and the like, and
# takes them from libgcc, whose exceptions it cannot end on Debian 12: libgcc comes first.
LD_PRELOAD=libgcc_s.so.1\${LD_PRELOAD:+:\$LD_PRELOAD}
export LD_PRELOAD
LD_LIBRARY_PATH=$libraries:$libraries/julia\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec $folder/root/usr/bin/julia "\$@"
EOF
chmod +x "$command.new"
"$command.new" --startup-file=no -e 'try error("x") catch; catch_backtrace() end' >&2 || give_up "the unpacked julia does not start"
mv "$command.new" "$command"
rm -rf "$folder/packages" "$folder/cache"
echo "$command"
