package jupyter

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
)

// Connection is the content of a connection file: where a kernel listens and
// the key that signs its messages.
type Connection struct {
	Transport string `json:"transport"`
	IP        string `json:"ip"`
	Shell     int    `json:"shell_port"`
	IOPub     int    `json:"iopub_port"`
	Stdin     int    `json:"stdin_port"`
	Control   int    `json:"control_port"`
	Heartbeat int    `json:"hb_port"`
	Scheme    string `json:"signature_scheme"`
	Key       string `json:"key"`
	Kernel    string `json:"kernel_name,omitempty"`
}

// NewConnection picks five free ports of loopback and a new key. The kernel
// binds the ports later: one that somebody took meanwhile makes it fail, and
// the caller tries again with another connection.
func NewConnection(kernel string) (Connection, error) {
	c := Connection{Transport: "tcp", IP: "127.0.0.1", Scheme: "hmac-sha256", Key: newID() + newID(), Kernel: kernel}
	for _, port := range []*int{&c.Shell, &c.IOPub, &c.Stdin, &c.Control, &c.Heartbeat} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return c, fmt.Errorf("find a port for a kernel: %w", err)
		}
		// Held until all are found, so that they differ.
		defer l.Close()
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return c, nil
}

// Ports are those that the kernel listens on.
func (c Connection) Ports() []int {
	return []int{c.Shell, c.IOPub, c.Stdin, c.Control, c.Heartbeat}
}

// File is the text of the connection file.
func (c Connection) File() []byte {
	text, _ := json.MarshalIndent(c, "", "  ") // strings and numbers: never fails
	return append(text, '\n')
}

func (c Connection) addr(port int) string { return net.JoinHostPort(c.IP, strconv.Itoa(port)) }
