//go:build root

package egress_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// The ports on which canaries answer: in clear text, in TLS, in UDP.
var (
	clearPorts = []int{22, 53, 80, 2375, 6379, 8080}
	tlsPorts   = []int{443, 853, 8443}
	udpPorts   = []int{123, 443, 5353}
)

// canary answers on a set of addresses, and notes who came. Its answers begin
// with CANARY and say which server it is and which host was asked for.
type canary struct {
	mu   sync.Mutex
	hits []string
	gate func() // called for /gate before the answer
}

// newCanary starts one on every address of a network namespace; in runs a
// function there.
func newCanary(t *testing.T, in func(func() error) error) *canary {
	t.Helper()
	c := &canary{}
	config := &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}, MinVersion: tls.VersionTLS12}
	for _, p := range slices.Concat(clearPorts, tlsPorts) {
		l := listenIn(t, in, p)
		if slices.Contains(tlsPorts, p) {
			l = tls.NewListener(l, config)
		}
		server := &http.Server{
			Handler: http.HandlerFunc(c.answer), ReadTimeout: patience, WriteTimeout: patience,
			ErrorLog: log.New(io.Discard, "", 0),
			ConnState: func(conn net.Conn, s http.ConnState) {
				if s == http.StateNew {
					c.hit("tcp " + conn.LocalAddr().String())
				}
			},
		}
		go func() { _ = server.Serve(l) }() // until it is closed
		t.Cleanup(func() { _ = server.Close() })
	}
	for _, p := range udpPorts {
		c.listenUDP(t, in, p)
	}
	return c
}

func listenIn(t *testing.T, in func(func() error) error, port int) net.Listener {
	t.Helper()
	var l net.Listener
	err := in(func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf("[::]:%d", port))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// listenUDP answers datagrams that were sent to the namespace's main addresses;
// the wire sees the others.
func (c *canary) listenUDP(t *testing.T, in func(func() error) error, port int) {
	t.Helper()
	var conn net.PacketConn
	err := in(func() (err error) {
		conn, err = net.ListenPacket("udp", fmt.Sprintf("[::]:%d", port))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		packet := make([]byte, 64<<10)
		for {
			_, from, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			c.hit("udp " + strconv.Itoa(port))
			_, _ = conn.WriteTo([]byte("CANARY"), from)
		}
	}()
	t.Cleanup(func() { _ = conn.Close() })
}

func (c *canary) hit(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hits = append(c.hits, what)
}

// take returns who came since the last call.
func (c *canary) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	hits := c.hits
	c.hits = nil
	return hits
}

// onGate sets what a request of /gate waits for; nil: nothing.
func (c *canary) onGate(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate = f
}

func (c *canary) answer(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 1<<20))
	switch r.URL.Path {
	case "/redirect":
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusFound)
	case "/gate":
		c.mu.Lock()
		gate := c.gate
		c.mu.Unlock()
		if gate != nil {
			gate()
		}
	}
	server := ""
	if r.TLS != nil {
		server = r.TLS.ServerName
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	host, _, _ := net.SplitHostPort(local.String())
	fmt.Fprintf(w, "CANARY address=%s host=%s sni=%s path=%s\n", host, r.Host, server, r.URL.Path)
}

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{cert}, PrivateKey: key}
}

// listenUnix answers CANARY to whoever connects to a UNIX socket.
func listenUnix(t *testing.T, c *canary, name string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", name)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.hit("unix " + name)
			_, _ = io.WriteString(conn, "CANARY address=unix host= \n")
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
}
