//go:build root && long

package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/cubbyhq/cubby/client"
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

// TestEgressOfJava has Java ask as Java does: it finds the proxy, and trusts
// whom the host trusts and nobody else.
func TestEgressOfJava(t *testing.T) {
	o, authority := newOrigin(t)
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
		// A JVM of what the program needs, for the sandbox.
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
	eachIsolation(t, sdk.CreateOptions{}, func(t *testing.T, _ realHost, c *sdk.Client) {
		files, err := os.Open(filepath.Join(dir, "java.tar"))
		if err != nil {
			t.Fatal(err)
		}
		defer files.Close()
		if _, err := c.Files("a").Write(t.Context(), "java.tar", files, sdk.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		// The test's servers are on addresses that Java takes for its own host.
		const java = "jre/bin/java -Dhttp.nonProxyHosts= "
		e := sh(t, c, "tar -xf java.tar && "+java+"Fetch http://"+o.plain+"/hello https://"+o.secure+"/hello")
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
