# Installs packages with install.packages. The arguments are NAME or NAME@VERSION.
# The last line of standard output is JSON: {"installed": [{"name", "version"}]}.
# install.packages only warns of what it could not do, so the end decides.
mirror <- sub("/+$", "", Sys.getenv("CUBBY_CRAN_MIRROR", "https://cloud.r-project.org"))
options(repos = c(CRAN = mirror), timeout = 600, warn = 1, Ncpus = 2)
fail <- function(...) {
  message("Error: ", ...)
  quit(save = "no", status = 1)
}
library_dir <- .libPaths()[1]
if (file.access(library_dir, 2) != 0) {
  library_dir <- strsplit(Sys.getenv("R_LIBS_USER"), ":", fixed = TRUE)[[1]][1]
  dir.create(library_dir, recursive = TRUE, showWarnings = FALSE)
  .libPaths(c(library_dir, .libPaths()))
}
present <- function(name) suppressWarnings(utils::packageDescription(name, fields = "Version"))
same <- function(a, b) !is.na(a) && package_version(a) == package_version(b)

# What the proxy says of a mirror that it refuses, in its own words: R hides them
# behind "HTTP response code said error".
refusal <- function(url) {
  tryCatch({
    proxy <- regmatches(Sys.getenv("https_proxy"), regexec("^http://([^:/]+):([0-9]+)", Sys.getenv("https_proxy")))[[1]]
    if (length(proxy) != 3 || !startsWith(url, "https://")) return()
    host <- sub("^https://([^/]+).*", "\\1", url)
    if (!grepl(":[0-9]+$", host)) host <- paste0(host, ":443")
    to <- socketConnection(proxy[2], as.integer(proxy[3]), blocking = TRUE, open = "r+b", timeout = 10)
    on.exit(close(to))
    writeLines(c(paste("CONNECT", host, "HTTP/1.1"), paste("Host:", host), ""), to, sep = "\r\n")
    status <- readLines(to, 1)
    if (grepl(" 200 ", status)) return()
    said <- sub("\r$", "", readLines(to, 40, warn = FALSE))
    message(paste(said[-seq_len(max(0, which(said == "")[1], na.rm = TRUE))], collapse = "\n"))
  }, error = function(e) NULL)
}

# That something is not found is no surprise; every other reason is told.
fetch <- function(url, to) {
  why <- character()
  done <- tryCatch(
    withCallingHandlers(utils::download.file(url, to, mode = "wb"), warning = function(w) {
      why <<- c(why, conditionMessage(w))
      invokeRestart("muffleWarning")
    }),
    error = function(e) { why <<- c(why, conditionMessage(e)); 1 }
  )
  status <- grep("status was", why, fixed = TRUE, value = TRUE)
  if (done != 0 && !any(grepl("'404", status, fixed = TRUE))) {
    message("Cannot fetch: ", c(status, why)[1])
    refusal(url)
  }
  done == 0
}
index <- NULL
newest <- function(name) {
  if (is.null(index)) index <<- utils::available.packages()
  if (nrow(index) == 0 && !fetch(paste0(mirror, "/src/contrib/PACKAGES"), tempfile())) fail("the index of ", mirror, " cannot be read")
  if (name %in% rownames(index)) index[name, "Version"] else NA
}
install <- function(names) {
  for (name in names) if (is.na(newest(name))) fail("package '", name, "' is not available at ", mirror)
  utils::install.packages(names, lib = library_dir)
}
# The tarball of one version: of the newest from the repository itself, of
# earlier ones from its archive.
tarball <- function(name, version) {
  file <- paste0(name, "_", version, ".tar.gz")
  to <- file.path(tempdir(), file)
  for (dir in c("src/contrib", paste0("src/contrib/Archive/", name))) {
    if (fetch(paste(mirror, dir, file, sep = "/"), to)) return(to)
  }
  fail("package '", name, "' version ", version, " is not available at ", mirror)
}
needed <- function(name, file) {
  utils::untar(file, paste0(name, "/DESCRIPTION"), exdir = tempdir())
  fields <- read.dcf(file.path(tempdir(), name, "DESCRIPTION"), fields = c("Depends", "Imports", "LinkingTo"))
  all <- trimws(sub("[(].*", "", unlist(strsplit(fields[!is.na(fields)], ","))))
  all <- setdiff(all, c("", "R"))
  all[vapply(all, function(p) is.na(present(p)), logical(1))]
}

wanted <- strsplit(commandArgs(trailingOnly = TRUE), "@", fixed = TRUE)
# Exact ones first: the others may need them, and would bring the newest.
wanted <- wanted[order(-lengths(wanted))]
for (w in wanted) {
  name <- w[1]
  if (length(w) == 1) {
    if (is.na(present(name))) install(name)
  } else if (!same(present(name), w[2])) {
    file <- tarball(name, w[2])
    missing <- needed(name, file)
    if (length(missing) > 0) install(missing)
    utils::install.packages(file, lib = library_dir, repos = NULL, type = "source")
  }
}
lines <- character()
for (w in wanted) {
  is <- present(w[1])
  if (is.na(is)) fail("package '", w[1], "' could not be installed")
  if (length(w) > 1 && !same(is, w[2])) fail("package '", w[1], "' is there in version ", is, ", not ", w[2])
  lines <- c(lines, sprintf('{"name":"%s","version":"%s"}', w[1], is))
}
cat('{"installed":[', paste(lines, collapse = ","), "]}\n", sep = "")
