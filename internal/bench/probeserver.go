package bench

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// probeServer is the server on loopback that probes talk to.
type probeServer struct {
	url   string // HTTPS
	plain string // the same without TLS
	root  string // its certificate, PEM
	// arrived gets a value when a probe waits at the gate, and release lets
	// it go on.
	arrived, release chan struct{}

	server http.Server
	serve  sync.WaitGroup
	apart  func() // ends the process that serves, if that is another
}

// ownLoopback is where a server listens that only its own machine reaches.
var ownLoopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// startProbeServer serves on an address of loopback until close.
func startProbeServer(ctx context.Context, on netip.Addr) (*probeServer, error) {
	cert, root, err := loopbackCertificate(on)
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", netip.AddrPortFrom(on, 0).String())
	if err != nil {
		return nil, err
	}
	plain, err := lc.Listen(ctx, "tcp", netip.AddrPortFrom(on, 0).String())
	if err != nil {
		l.Close()
		return nil, err
	}
	s := &probeServer{url: "https://" + l.Addr().String(), plain: "http://" + plain.Addr().String(), root: root, arrived: make(chan struct{}, 1), release: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /small", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here\n") })
	mux.HandleFunc("GET /bytes", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.FormValue("n"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
		_, _ = io.CopyBuffer(onlyWriter{w}, io.LimitReader(newNoise(), n), make([]byte, transferBuffer)) // a client that leaves notices itself
	})
	mux.HandleFunc("POST /bytes", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.CopyBuffer(onlyWriter{io.Discard}, r.Body, make([]byte, transferBuffer)) // the client compares
		_, _ = fmt.Fprintln(w, n)
	})
	mux.HandleFunc("GET /gate", func(_ http.ResponseWriter, r *http.Request) {
		s.arrived <- struct{}{}
		select {
		case <-s.release:
		case <-r.Context().Done():
		}
	})
	s.server = http.Server{
		Handler: mux, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13},
		// HTTP/1.1 alone: a stream of requests on a connection is what is
		// measured.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	// Both end with close.
	s.serve.Go(func() { _ = s.server.ServeTLS(l, "", "") })
	s.serve.Go(func() { _ = s.server.Serve(plain) })
	return s, nil
}

func (s *probeServer) close() {
	if s.apart != nil {
		s.apart()
		return
	}
	_ = s.server.Close()
	s.serve.Wait()
}

// serveProbes asks for a process that serves.
const serveProbes = "serve"

// served is what such a process says first.
type served struct{ URL, Plain, Root string }

// startServerApart starts this program again as the server.
func startServerApart(ctx context.Context) (*probeServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "bench", "probe", serveProbes)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	said, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &probeServer{apart: func() {
		_ = in.Close()
		_ = cmd.Wait() // it has nothing to say about its end
	}}
	var a served
	if err := json.NewDecoder(said).Decode(&a); err != nil {
		s.close()
		return nil, fmt.Errorf("a server of its own: %w", err)
	}
	s.url, s.plain, s.root = a.URL, a.Plain, a.Root
	return s, nil
}

// serveApart serves until its input ends.
func serveApart(ctx context.Context, in io.Reader, out io.Writer) error {
	s, err := startProbeServer(ctx, ownLoopback)
	if err != nil {
		return err
	}
	defer s.close()
	if err := json.NewEncoder(out).Encode(served{s.url, s.plain, s.root}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// transferBuffer is what the ends of a transfer read and write at once.
const transferBuffer = 256 << 10

// onlyWriter hides ReadFrom, whose buffers are smaller.
type onlyWriter struct{ io.Writer }

// loopbackCertificate makes a certificate that signs itself.
func loopbackCertificate(of netip.Addr) (cert tls.Certificate, root string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, "", err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "cubby bench"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IPAddresses: []net.IP{of.AsSlice()}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return cert, "", err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), nil
}
