//go:build root && long

package e2e_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/test/harness"
)

// fetch is a program that knows nothing of proxies and authorities.
const fetch = `
import java.net.URL;

public class Fetch {
	public static void main(String[] urls) throws Exception {
		for (String url : urls) {
			System.out.print(new String(new URL(url).openStream().readAllBytes()));
		}
	}
}
`

// javaProgram makes a tar with fetch and a JVM of what it needs, and a file with
// the authorities of the host, which are those given.
func javaProgram(t *testing.T, authority string) (files string) {
	t.Helper()
	dir := t.TempDir()
	host := filepath.Join(dir, "host.pem")
	for path, text := range map[string]string{host: authority, filepath.Join(dir, "Fetch.java"): fetch} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SSL_CERT_FILE", host)
	for _, argv := range [][]string{
		{"javac", "--release", "11", "-nowarn", "Fetch.java"},
		{"jlink", "--add-modules", "java.base,jdk.crypto.ec", "--strip-java-debug-attributes", "--no-header-files", "--no-man-pages", "--output", "jre"},
		{"tar", "-cf", "java.tar", "jre", "Fetch.class"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", argv[0], err, out)
		}
	}
	return filepath.Join(dir, "java.tar")
}

// bring puts a file of the host into the sandbox and unpacks it there.
func bring(t *testing.T, c *sdk.Client, path string) {
	t.Helper()
	files, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	if _, err := c.Files("a").Write(t.Context(), "java.tar", files, sdk.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := sh(t, c, "tar -xf java.tar"); e.Err() != nil {
		t.Fatalf("unpack: %s", e.Stderr)
	}
}

// TestEgressOfJava has Java ask as Java does: it finds the proxy, and trusts
// whom the host trusts and nobody else.
func TestEgressOfJava(t *testing.T) {
	o, authority := newOrigin(t)
	files := javaProgram(t, authority)
	eachIsolation(t, sdk.CreateOptions{}, func(t *testing.T, _ realHost, c *sdk.Client) {
		bring(t, c, files)
		// The test's servers are on addresses that Java takes for its own host.
		const java = "jre/bin/java -Dhttp.nonProxyHosts= "
		e := sh(t, c, java+"Fetch http://"+o.plain+"/hello https://"+o.secure+"/hello")
		if n := strings.Count(e.Stdout, "hello over"); n != 2 {
			t.Errorf("Java: %q %q", e.Stdout, e.Stderr)
		}
		// An authority that it does not have it does not trust.
		e = sh(t, c, java+"-Djavax.net.ssl.trustStore=/dev/null Fetch https://"+o.secure+"/hello")
		if strings.Contains(e.Stdout, "hello over") || !strings.Contains(e.Stderr, "SSL") {
			t.Errorf("Java trusts anybody: %q %q", e.Stdout, e.Stderr)
		}
	})
}

// TestJavaWithoutProxy has Java ask by name where nothing names a proxy.
func TestJavaWithoutProxy(t *testing.T) {
	o, authority := newOrigin(t)
	files := javaProgram(t, authority)
	unnamed := false
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			h := newReal(t, harness.Options{Program: named(t, goodName)})
			url, err := h.start([]string{"--egress-allow", elsewhere})
			if err != nil {
				t.Fatal(err)
			}
			c := clientOf(url)
			if _, err := c.Create(t.Context(), sdk.CreateOptions{
				ID: "a", Isolation: isolation, Network: &sdk.Network{Allow: []string{goodName}, ProxyEnv: &unnamed},
			}); err != nil {
				t.Fatal(err)
			}
			bring(t, c, files)
			_, plain, _ := net.SplitHostPort(o.plain)
			_, secure, _ := net.SplitHostPort(o.secure)
			e := sh(t, c, "env | grep -ic '^[a-z]*_proxy='; jre/bin/java Fetch http://"+goodName+":"+plain+"/hello https://"+goodName+":"+secure+"/hello")
			if n := strings.Count(e.Stdout, "hello over"); n != 2 || !strings.HasPrefix(e.Stdout, "0\n") {
				t.Errorf("Java: %q %q", e.Stdout, e.Stderr)
			}
			e = sh(t, c, "jre/bin/java Fetch http://bad.example.org/")
			if !strings.Contains(e.Stderr, "UnknownHostException") {
				t.Errorf("a name that is denied: %q %q", e.Stdout, e.Stderr)
			}
			if err := h.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
