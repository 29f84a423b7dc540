  set <- function(name, old, new) {
    # What the user set since is kept.
    if (!identical(Sys.getenv(name, NA), old)) return()
    if (is.na(new)) Sys.unsetenv(name) else do.call(Sys.setenv, structure(list(new), names = name))
  }
