#!/usr/bin/env bash
# Type-checks the whole workspace, tests included, for the systems this one is not: Windows and macOS.
#
#   sudo tests/cross-check.sh [TARGET...]        default: x86_64-pc-windows-gnu aarch64-apple-darwin
#
# For a Debian machine, as root, by hand: it downloads about 250 MB the first time. It takes the standard library's source
# from Debian's backports of the next release (the packaged source of exactly the compiler in use), builds the library for
# each target, and runs a plain `cargo check` against it. C code of dependencies is compiled for real: by Debian's MinGW
# for Windows, by `zig cc` for macOS. Nothing is linked and nothing of the result is run.
#
# Everything it makes lies in CROSS_ROOT (default: ~/.cache/atomic-cross); it changes no toolchain and no apt source.
# Exit code: 0 every target was checked, 1 a check failed, 2 a target was SKIPPED because something it needs is missing.
set -u -o pipefail

readonly SUITE=trixie-backports          # where Debian keeps the sources of current compilers
readonly ZIG=0.15.2                      # version of the ziglang package; any recent one should do
readonly CROSS_ROOT=${CROSS_ROOT:-${XDG_CACHE_HOME:-$HOME/.cache}/atomic-cross}

cd "$(dirname "$0")/.." || exit 1

say() { printf '%s\n' "cross-check: $*" >&2; }

declare -A result=()
skip() { # TARGET REASON...
    local target=$1
    shift
    result[$target]="SKIPPED: $*"
    printf '\n*** SKIPPED %s: %s ***\n\n' "$target" "$*" >&2
}

have() { command -v "$1" >/dev/null 2>&1; }

install_package() { # PACKAGE: installs it with apt when that is possible
    have apt-get && [ "$(id -u)" -eq 0 ] || return 1
    say "installing $1"
    apt-get install --yes --quiet --no-install-recommends "$1" >&2
}

# ---- the standard library's source -------------------------------------------------------------------------------------

version=$(rustc --version | awk '{print $2}') || { say "no rustc on the PATH"; exit 2; }
readonly version
readonly library=$CROSS_ROOT/$version/source/library
readonly sysroot=$CROSS_ROOT/$version/sysroot

fetch_source() {
    [ -f "$library/Cargo.lock" ] && return 0
    have apt-get || { say "no apt-get: this is no Debian machine"; return 1; }
    have dpkg-deb || { say "no dpkg-deb"; return 1; }
    local mirror apt=$CROSS_ROOT/$version/apt
    mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | head -n 1)
    [ -n "$mirror" ] || { say "apt names no mirror: run apt-get update first"; return 1; }
    mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$(dirname "$library")" || return 1
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" "$SUITE" \
        >"$apt/sources.list"
    local options=(
        -o "Dir::State=$apt/state" -o "Dir::Cache=$apt/cache" -o "Dir::Etc::sourcelist=$apt/sources.list"
        -o Dir::Etc::sourceparts=/nonexistent -o Dir::State::status=/var/lib/dpkg/status
        -o APT::Sandbox::User=root -o Acquire::Languages=none
    )
    apt-get --quiet "${options[@]}" update >&2 || { say "apt cannot read $SUITE"; return 1; }
    local package
    package=$(apt-cache "${options[@]}" madison rust-src | awk -v want="$version+" 'index($3, want) == 1 { print $3; exit }')
    if [ -z "$package" ]; then
        say "$SUITE has no rust-src $version; it has:" \
            "$(apt-cache "${options[@]}" madison rust-src | awk '{printf "%s ", $3}')"
        return 1
    fi
    (
        cd "$apt" && apt-get --quiet "${options[@]}" download "rust-src=$package" >&2 &&
            dpkg-deb --fsys-tarfile rust-src_*.deb |
            tar --extract --directory "$(dirname "$library")" --strip-components=4 "./usr/src/rustc-$version/library"
    ) || { say "rust-src $package cannot be unpacked"; return 1; }
    rm -rf "$apt"
}

# ---- the standard library for one target -------------------------------------------------------------------------------

build_library() { # TARGET
    local target=$1 libraries=$sysroot/lib/rustlib/$1/lib work=$CROSS_ROOT/$version/build/$1
    [ -f "$libraries/.complete" ] && return 0
    say "building the standard library for $target"
    rm -rf "$work" "$libraries" && mkdir -p "$work/src" "$libraries" && : >"$work/src/lib.rs" || return 1
    printf '%s\n' '[package]' 'name = "nothing"' 'version = "0.0.0"' 'edition = "2021"' '[workspace]' \
        '[profile.release]' 'opt-level = 0' 'debug = 0' >"$work/Cargo.toml"
    # An empty crate built with its standard library; `test` is in the list because --all-targets needs it.
    (
        cd "$work" && RUSTC_BOOTSTRAP=1 __CARGO_TESTS_ONLY_SRC_ROOT=$library cargo build --quiet --release \
            --target "$target" --target-dir "$work/target" \
            -Zbuild-std=std,panic_unwind,panic_abort,proc_macro,test >&2
    ) || return 1
    find "$work/target/$target/release/deps" -name '*.rlib' ! -name 'libnothing*' -exec cp {} "$libraries/" \; || return 1
    rm -rf "$work"
    touch "$libraries/.complete"
}

# ---- C compilers -------------------------------------------------------------------------------------------------------

mingw() {
    have x86_64-w64-mingw32-gcc || install_package gcc-mingw-w64-x86-64-win32 || return 1
    export CC_x86_64_pc_windows_gnu=x86_64-w64-mingw32-gcc AR_x86_64_pc_windows_gnu=x86_64-w64-mingw32-ar
}

zig_compiler() {
    local zig
    if have zig; then
        zig=zig
    else
        local venv=$CROSS_ROOT/zig-$ZIG
        if [ ! -x "$venv/bin/python3" ] || ! "$venv/bin/python3" -c 'import ziglang' 2>/dev/null; then
            have python3 || return 1
            python3 -m venv "$venv" 2>/dev/null || { install_package python3-venv && python3 -m venv "$venv"; } || return 1
            "$venv/bin/pip" install --quiet "ziglang==$ZIG" >&2 || return 1
        fi
        zig="$venv/bin/python3 -m ziglang"
    fi
    local tools=$CROSS_ROOT/tools
    mkdir -p "$tools" || return 1
    # What build scripts say about Apple targets, zig says by its own -target.
    cat >"$tools/cc-aarch64-apple-darwin" <<WRAPPER || return 1
#!/usr/bin/env bash
kept=()
while [ \$# -gt 0 ]; do
    case \$1 in
    -arch | -isysroot | -target) shift ;;
    --target=* | -mmacosx-version-min=* | -mmacos-version-min=*) ;;
    *) kept+=("\$1") ;;
    esac
    shift
done
exec $zig cc -target aarch64-macos "\${kept[@]}"
WRAPPER
    printf '#!/usr/bin/env bash\nexec %s ar "$@"\n' "$zig" >"$tools/ar-zig" || return 1
    chmod +x "$tools/cc-aarch64-apple-darwin" "$tools/ar-zig" || return 1
    export CC_aarch64_apple_darwin=$tools/cc-aarch64-apple-darwin AR_aarch64_apple_darwin=$tools/ar-zig
    export SDKROOT=$tools # any folder: nothing is linked
}

# ---- the check ---------------------------------------------------------------------------------------------------------

check() { # TARGET
    local target=$1 flags
    case $target in
    x86_64-pc-windows-gnu) mingw || { skip "$target" "no MinGW compiler (package gcc-mingw-w64-x86-64-win32)"; return; } ;;
    aarch64-apple-darwin) zig_compiler || { skip "$target" "no zig and no ziglang $ZIG from pip"; return; } ;;
    *) skip "$target" "this script has no C compiler for it"; return ;;
    esac
    build_library "$target" || { skip "$target" "its standard library does not build"; return; }
    # Per target, so that build scripts and macros keep the host's own library.
    flags=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$target")_RUSTFLAGS
    say "checking $target"
    if env "$flags=--sysroot=$sysroot" cargo check --workspace --all-targets --locked --target "$target" \
        --target-dir "$CROSS_ROOT/target"; then
        result[$target]="ok"
    else
        result[$target]="FAILED"
    fi
}

targets=("$@")
[ $# -gt 0 ] || targets=(x86_64-pc-windows-gnu aarch64-apple-darwin)
have cargo || { say "no cargo on the PATH"; exit 2; }

if fetch_source; then
    for target in "${targets[@]}"; do
        check "$target"
    done
else
    for target in "${targets[@]}"; do
        skip "$target" "the source of the standard library $version cannot be had"
    done
fi

code=0
printf '\n'
for target in "${targets[@]}"; do
    printf '%-26s %s\n' "$target" "${result[$target]}"
    case ${result[$target]} in
    ok) ;;
    SKIPPED*) [ $code -eq 1 ] || code=2 ;;
    *) code=1 ;;
    esac
done
exit $code
