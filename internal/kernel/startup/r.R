local({
  options(
    # 800 by 600 points.
    repr.plot.width = 8, repr.plot.height = 6, repr.plot.res = 100, jupyter.plot_scale = 1,
    jupyter.display_mimetypes = c(
      "text/plain", "text/html", "image/png", "image/jpeg", "image/svg+xml", "application/json"
    ),
    crayon.enabled = FALSE, cli.num_colors = 1L, warn = 1L
  )
  mirror <- Sys.getenv("CUBBY_CRAN_MIRROR")
  if (nzchar(mirror)) options(repos = c(CRAN = mirror))

  # install.packages() needs a library that the user may write to.
  mine <- Sys.getenv("R_LIBS_USER")
  if (nzchar(mine) && file.access(.libPaths()[1L], 2L) != 0L && dir.create(mine, FALSE, TRUE)) .libPaths(c(mine, .libPaths()))

  # The kernel's one way out. It shows all visible values of a cell alike, calls
  # every error ERROR, says nothing of an interrupt, asks also where nobody can
  # answer, and leaves it to others to end it.
  executor <- NULL
  for (frame in sys.frames()) {
    self <- get0(".self", frame, inherits = TRUE)
    if (inherits(self, "Executor")) executor <- self
  }
  if (is.null(executor)) return()
  send <- executor$send_response
  value <- NULL # the latest visible one of the cell
  flush <- function(as, count = NULL) {
    if (!is.null(value)) send(as, value$request, "iopub", c(value$bundle, count))
    value <<- NULL
  }
  fail <- function(content, name, text) {
    content$ename <- name
    content$evalue <- text
    content
  }
  executor$send_response <- function(type, request, socket, content) {
    from <- parent.frame()
    if (type == "execute_input") value <<- NULL
    if (type == "display_data" && exists("visible", from, inherits = FALSE)) {
      flush("display_data")
      if (is.atomic(from$obj) && is.null(dim(from$obj))) content$data$`text/html` <- NULL
      value <<- list(request = request, bundle = content)
      return(invisible())
    }
    if (type == "stream") content$text <- sub("\n\n$", "\n", content$text) # message() ends its line itself
    if (type == "display_data") {
      for (mime in names(Filter(is.raw, content$data))) { # base64 in one line
        content$data[[mime]] <- base64enc::base64encode(content$data[[mime]])
      }
    }
    if (type == "input_request" && !isTRUE(request$content$allow_stdin)) {
      stop(structure(
        class = c("StdinNotImplementedError", "error", "condition"),
        list(message = "the code asked for input, and nothing was connected to answer", call = NULL)
      ))
    }
    if (type == "error" && inherits(from$e, "condition")) {
      content <- fail(content, class(from$e)[[1L]], conditionMessage(from$e))
      # How the condition came here is nobody's business.
      own <- grep("^[0-9]+\\. (\\.handleSimpleError|signalCondition)\\(", content$traceback)
      if (length(own)) content$traceback <- content$traceback[seq_len(own[[1L]] - 1L)]
      executor$err <- content
    }
    if (type == "execute_reply") {
      flush(if (identical(content$status, "ok")) "execute_result" else "display_data",
        list(execution_count = executor$execution_count))
      if (identical(content$status, "abort")) {
        error <- fail(list(traceback = list()), "interrupt", "the cell was interrupted")
        send("error", request, "iopub", error)
        content <- c(list(status = "error", execution_count = executor$execution_count), error)
      }
    }
    send(type, request, socket, content)
    if (type == "execute_reply" && any(vapply(content$payload, function(p) identical(p$source, "ask_exit"), NA))) {
      eval(quote(.Internal(quit("no", 0L, FALSE))), baseenv())
    }
  }
})
