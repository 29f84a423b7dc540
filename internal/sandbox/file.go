package sandbox

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"time"
)

// FileType is what a path names.
type FileType string

const (
	RegularFile FileType = "file"
	Directory   FileType = "dir"
	Symlink     FileType = "symlink"
	OtherFile   FileType = "other" // device, socket, FIFO
)

// File describes one path of a sandbox.
type File struct {
	Path    string // absolute, inside the sandbox
	Type    FileType
	Size    int64       // bytes; 0 for directories
	Mode    fs.FileMode // permission bits only
	UID     uint32
	GID     uint32
	ModTime time.Time
	Target  string // of a symlink, as stored
}

// FileWrite says how a file is written. The default replaces the file
// atomically (a temporary file beside it, fsync, rename): readers see the old
// or the new content, never a part.
type FileWrite struct {
	Mode    fs.FileMode // 0: keep an existing file's, else 0644
	Append  bool
	Parents bool   // make missing directories
	User    string // owner of the file, also of one that exists, and of what is made
	// Maker is the owner of what is made when User is empty: an existing file
	// keeps its own. "" is UserSandbox.
	Maker string
	// Replaces, when not nil, is the SHA-256 of the content that the file has to have
	// still when it is replaced: else, or when it is gone, nothing is written and the
	// write is a Conflict. It does not go with Append.
	Replaces []byte
}

// FileChange is one change that a watch reports.
type FileChange struct {
	Path string
	Op   string // "ready" (first), "create", "write", "remove", "rename", "chmod", "overflow"
	Time time.Time
}

// ArchiveFormat is the container of a directory download.
type ArchiveFormat string

const (
	Tar   ArchiveFormat = "tar"
	TarGz ArchiveFormat = "tar.gz"
	Zip   ArchiveFormat = "zip"
)

// Files is the file API: what the agent of a running sandbox and the disk of a
// stopped one have in common. Names are absolute inside the sandbox.
type Files interface {
	Stat(ctx context.Context, name string, follow bool) (File, error)
	ListFiles(ctx context.Context, name string, recursive bool) iter.Seq2[File, error]
	Read(ctx context.Context, name string, offset, length int64) (io.ReadCloser, File, error)
	Write(ctx context.Context, name string, r io.Reader, w FileWrite) (File, error)
	MakeDir(ctx context.Context, name string, mode fs.FileMode, parents bool, user string) (File, error)
	Rename(ctx context.Context, from, to string, replace bool) (File, error)
	Remove(ctx context.Context, name string, recursive bool) error
	Archive(ctx context.Context, name string) (io.ReadCloser, error)
	// Within is for names that must not lead out of a directory.
	ReadWithin(ctx context.Context, dir, name string, offset, length int64) (io.ReadCloser, File, error)
	ArchiveWithin(ctx context.Context, dir, name string) (io.ReadCloser, error)
	Extract(ctx context.Context, name string, r io.Reader, user string) error
}
