# Which libzero.so is loaded: the environment, a preference, a path beside this package, the system's.
# SPDX-License-Identifier: BSD-3-Clause

"""
The library's file: `ENV["LIBZERO_LIBRARY"]`, else `library` under `[LibZero]` in a
LocalPreferences.toml beside the active project, else the library that this package was installed
with, else what the system's loader finds.
"""
function library_path()
    named = get(ENV, "LIBZERO_LIBRARY", "")
    isempty(named) || return named
    project = Base.active_project()
    if project !== nothing
        file = joinpath(dirname(project), "LocalPreferences.toml")
        isfile(file) && (found = preference(read(file, String)); found === nothing || return found)
    end
    installed = joinpath(@__DIR__, "..", "library.path")
    isfile(installed) && return strip(read(installed, String))
    return Raw.libzero
end

"""`library` of the section `[LibZero]`, or nothing."""
function preference(text::AbstractString)
    inside = false
    for line in split(text, '\n')
        section = match(r"^\s*\[([^\]]+)\]", line)
        section === nothing || (inside = strip(section.captures[1]) == "LibZero")
        found = match(r"^\s*library\s*=\s*\"([^\"]*)\"", line)
        inside && found !== nothing && return String(found.captures[1])
    end
    return nothing
end

function __init__()
    path = library_path()
    handle = try
        Libdl.dlopen(path, Libdl.RTLD_NOW | Libdl.RTLD_GLOBAL)
    catch why
        error("LibZero: $path cannot be opened (set LIBZERO_LIBRARY to libzero.so's path): $why")
    end
    # Calls name the soname, which the loader answers with the file that is open by now.
    number = ccall(Libdl.dlsym(handle, :zero_version_number), Int32, ())
    if number ÷ 10000 != Raw.VERSION_NUMBER.major
        error("LibZero: $path is of version number $number, this package is of $(Raw.VERSION_NUMBER)")
    end
    init_callbacks()
end

"""The loaded library's version, with its revision."""
version() = unsafe_string(Raw.zero_version_string())
