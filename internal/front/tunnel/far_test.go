package tunnel_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// A daemon far away is reached over TLS and through a proxy, as by every other
// call, and the ends of directions pass there too.
func TestFarAway(t *testing.T) {
	cert, key, roots := certificate(t)
	d := daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) {
		c.Tokens, c.TLSCert, c.TLSKey = "alice:"+token, cert, key
	}})
	var tunnels atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "CONNECT alone", http.StatusMethodNotAllowed)
			return
		}
		tunnels.Add(1)
		connect(w, r)
	}))
	defer proxy.Close()
	by, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{Proxy: http.ProxyURL(by), TLSClientConfig: &tls.Config{RootCAs: roots}}
	c := client.New("https://"+strings.TrimPrefix(d.URL, "http://"), client.WithToken(token), client.WithHTTPClient(&http.Client{Transport: tr}))
	t.Cleanup(c.Close)
	if _, err := c.Create(t.Context(), client.CreateOptions{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	w := &world{Client: c, t: t, d: d, port: listen(t, echo)}
	conn, sent := w.dial(), random(4<<20)
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != string(sent) {
		t.Errorf("%d bytes of %d came back, %v", len(got), len(sent), err)
	}
	if tunnels.Load() < 2 {
		t.Errorf("%d tunnels through the proxy", tunnels.Load())
	}
}

// connect is what a proxy does with CONNECT.
func connect(w http.ResponseWriter, r *http.Request) {
	there, err := new(net.Dialer).DialContext(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer there.Close()
	here, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer here.Close()
	_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(there, here)
		_ = there.Close() // as proxies do: they know no half of a connection
	}()
	_, _ = io.Copy(here, there)
	_ = here.Close()
	<-done
}

// certificate makes one for 127.0.0.1, with its key.
func certificate(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(certFile, public, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600); err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(public)
	return certFile, keyFile, roots
}
