package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cubbyhq/cubby/internal/errs"
)

// SQLSTATE codes that mean something to a caller. The first two characters are
// a class.
const (
	codeUnique        = "23505"
	codeForeignKey    = "23503"
	codeReadOnly      = "25006"
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeNoDatabase    = "3D000"
	codeForbidden     = "42501"
	codeDiskFull      = "53100"
	codeLockTimeout   = "55P03"
	codeIO            = "58030"

	classConnection = "08"
	classLogin      = "28"
	classResources  = "53"
	classOperator   = "57" // shut down, crashed, starting up, canceled
	classDamaged    = "XX" // internal: a page or an index is corrupt
	classData       = "22" // a text that the database cannot keep
)

func unready(message string, cause error) error {
	return errs.E(errs.Unready, "%s", message).RetryAfter(time.Second).Because(cause)
}

// classifyPostgres names the errors that a client or an operator can do
// something about.
func classifyPostgres(err error) error {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		if lostConnection(err) {
			return unready("the database cannot be reached", err)
		}
		return err
	}
	switch e.Code {
	case codeUnique:
		return errs.E(errs.Conflict, "it exists already").Because(err)
	case codeForeignKey:
		return errs.E(errs.NotFound, "what it belongs to does not exist").Because(err)
	case codeReadOnly:
		return unready("the database is read-only", err)
	case codeSerialization, codeDeadlock, codeLockTimeout:
		return unready("the database is busy", err)
	case codeNoDatabase:
		return unready("the database does not exist", err)
	case codeForbidden:
		return unready("the database does not give its user the right", err)
	case codeDiskFull:
		return errs.E(errs.Exhausted, "the database's disk is full").Because(err)
	case codeIO:
		return unready("the database cannot be read or written", err)
	}
	switch e.Code[:min(2, len(e.Code))] {
	case classLogin:
		return unready("the database refuses the user or the password", err)
	case classConnection, classResources, classOperator:
		return unready("the database cannot be reached", err)
	case classDamaged:
		return errs.E(errs.Internal, "the store is damaged").Hint("restore the database from a backup").Because(err)
	case classData:
		return errs.E(errs.Invalid, "it cannot be stored").Because(err)
	}
	return err
}

// inTheWay reports whether a transaction failed only because of another one.
func inTheWay(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == codeSerialization || e.Code == codeDeadlock)
}

// Connecting reports whether no connection could be made.
func Connecting(err error) bool {
	var e *pgconn.ConnectError
	return errors.As(err, &e)
}

// lostConnection reports whether the server went away, or could not be reached
// at all.
func lostConnection(err error) bool {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return strings.HasPrefix(e.Code, classConnection) || strings.HasPrefix(e.Code, "57P")
	}
	var network net.Error
	return Connecting(err) || errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, pgconn.ErrConnClosed) ||
		errors.Is(err, context.DeadlineExceeded)
}
