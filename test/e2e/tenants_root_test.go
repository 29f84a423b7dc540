//go:build root

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/test/harness"
)

// tenantWorld is a daemon with sandboxes of both isolations in one tenant, and
// one of another tenant.
type tenantWorld struct {
	t   *testing.T
	h   realHost
	url string
}

func newTenantWorld(t *testing.T) *tenantWorld {
	t.Helper()
	w := &tenantWorld{t: t, h: newReal(t, harness.Options{})}
	w.start()
	w.create("g", "acme", "gvisor")
	w.create("c", "acme", "container")
	return w
}

func (w *tenantWorld) start() {
	w.t.Helper()
	url, err := w.h.start([]string{"--tenant-disk", "64MiB"})
	if err != nil {
		w.t.Fatal(err)
	}
	w.url = url
}

func (w *tenantWorld) create(id, tenant, isolation string) {
	w.t.Helper()
	body := fmt.Sprintf(`{"id":%q,"tenant_id":%q,"isolation":%q}`, id, tenant, isolation)
	if status, text := call(w.t, "POST", w.url+"/v1/sandboxes", body); status != http.StatusCreated {
		w.t.Fatalf("create %s = %d %s", id, status, text)
	}
}

// sh runs a command in a sandbox and returns what it printed.
func (w *tenantWorld) sh(id, user, command string) string {
	w.t.Helper()
	body, err := json.Marshal(map[string]string{"cmd": command + " 2>&1", "user": user})
	if err != nil {
		w.t.Fatal(err)
	}
	status, text := call(w.t, "POST", w.url+"/v1/sandboxes/"+id+"/exec", string(body))
	var answer struct {
		Stdout string `json:"stdout"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK {
		w.t.Fatalf("%s: %s = %d %s", id, command, status, text)
	}
	return strings.TrimSpace(answer.Stdout)
}

func (w *tenantWorld) want(id, user, command, want string) {
	w.t.Helper()
	if got := w.sh(id, user, command); got != want {
		w.t.Errorf("%s: %s printed %q, want %q", id, command, got, want)
	}
}

// mounted counts the disks of tenants that are mounted.
func (w *tenantWorld) mounted() int {
	w.t.Helper()
	dirs, err := filepath.Glob(filepath.Join(w.h.Dir, "disks", "*", "mnt", "uploads"))
	if err != nil {
		w.t.Fatal(err)
	}
	return len(dirs)
}

// TestTenantFilesAreCoherent: what one sandbox of a tenant changes, the others
// see at once, whatever they saw before, and owners are the same in both
// isolations.
func TestTenantFilesAreCoherent(t *testing.T) {
	t.Parallel()
	w := newTenantWorld(t)
	w.create("g2", "acme", "gvisor")
	for _, pair := range [][2]string{{"g", "c"}, {"c", "g"}, {"g", "g2"}} {
		one, two := pair[0], pair[1]
		w.sh(one, "sandbox", "rm -rf /workspace/*; echo 1 >/workspace/f; mkdir /workspace/d; echo x >/workspace/d/x")
		w.want(two, "sandbox", "cat /workspace/f; test -e /workspace/new || echo none; cat /workspace/d/x", "1\nnone\nx")
		w.sh(one, "sandbox", "echo 22 >/workspace/f; echo new >/workspace/new")
		w.want(two, "sandbox", "cat /workspace/f /workspace/new; stat -c %s /workspace/f", "22\nnew\n3")
		w.sh(one, "sandbox", "echo 333 >/workspace/t; mv /workspace/t /workspace/f; rm /workspace/new; mv /workspace/d /workspace/e; chmod 600 /workspace/f")
		w.want(two, "sandbox", "cat /workspace/f; ls /workspace; cat /workspace/e/x; stat -c %a /workspace/f", "333\ne\nf\nx\n600")
		w.sh(two, "sandbox", "echo four >>/workspace/f")
		w.want(one, "sandbox", "cat /workspace/f", "333\nfour")

		w.sh(one, "root", "touch /workspace/root")
		w.want(two, "sandbox", "stat -c %u:%g /workspace/root /workspace/f /workspace /mnt/user-data/outputs", "0:0\n1000:1000\n1000:1000\n1000:1000")
		w.want(two, "root", "chown 1234:4321 /workspace/root; stat -c %u:%g /workspace/root", "1234:4321")
		w.want(one, "root", "stat -c %u:%g /workspace/root", "1234:4321")
	}
}

// TestTenantAttacks are attempts to get out of what a tenant shares.
func TestTenantAttacks(t *testing.T) {
	t.Parallel()
	w := newTenantWorld(t)
	w.create("other", "other", "container")
	if status, text := call(t, "PUT", w.url+"/v1/tenants/acme/uploads?path=in/f", "upload\n"); status != http.StatusOK {
		t.Fatalf("upload = %d %s", status, text)
	}
	for _, id := range []string{"g", "c"} {
		// Uploads cannot be changed, not even by the sandbox's root, and not by
		// another name.
		w.sh(id, "root", "for f in /mnt/user-data/uploads; do echo x >$f/in/f; touch $f/x; rm -rf $f/in; mv $f/in $f/out; chown 1000 $f/in/f; mount -o remount,rw $f; done")
		w.sh(id, "root", "ln /mnt/user-data/uploads/in/f /workspace/hard && echo x >/workspace/hard")
		w.sh(id, "root", "ln -s /mnt/user-data/uploads/in/f /workspace/soft; echo x >/workspace/soft")
		w.want(id, "root", "cat /mnt/user-data/uploads/in/f; ls /mnt/user-data/uploads; rm -rf /workspace/*; ls /workspace", "upload\nin")
		// Neither device files nor set-user-id programs.
		w.sh(id, "root", "mknod /workspace/disk b 7 0; mknod /workspace/null c 1 3; cp /bin/cat /workspace/cat; chmod 4755 /workspace/cat")
	}
	w.want("c", "sandbox", "cat /workspace/disk /workspace/null >/dev/null 2>/dev/null && echo read; /workspace/cat /etc/shadow >/dev/null 2>&1 && echo shadow; true", "")
	w.want("g", "sandbox", "/workspace/cat /etc/shadow >/dev/null 2>&1 && echo shadow; true", "")

	// Symbolic links of one sandbox lead another to its own files, and the daemon
	// nowhere.
	w.sh("c", "root", "rm -rf /workspace/*; ln -s /etc/hostname /workspace/h; ln -s / /workspace/root; ln -s ../../../../../../etc/hostname /workspace/up; ln -s /workspace/../mnt/user-data/uploads/../../../../etc/hostname /mnt/user-data/outputs/h")
	w.want("g", "root", "cat /workspace/h /workspace/root/etc/hostname /workspace/up /mnt/user-data/outputs/h", "g\ng\ng\ng")
	if status, text := call(t, "POST", w.url+"/v1/sandboxes/c/stop", ""); status != http.StatusOK {
		t.Fatalf("stop = %d %s", status, text)
	}
	for _, name := range []string{"/workspace/h", "/workspace/root/etc/hostname", "/workspace/up", "/mnt/user-data/outputs/h", "/workspace/root/workspace/up"} {
		if status, text := call(t, "GET", w.url+"/v1/sandboxes/c/files/content?path="+name, ""); status != http.StatusConflict {
			t.Errorf("%s of a stopped sandbox = %d %s", name, status, text)
		}
	}
	for _, tenant := range []string{"..%2Facme", "%2E%2E", "acme%2F..%2Fother", "a..b", "acme%00"} {
		if status, text := call(t, "PUT", w.url+"/v1/tenants/"+tenant+"/uploads?path=f", "x"); status/100 != 4 {
			t.Errorf("upload to %s = %d %s", tenant, status, text)
		}
	}
	if status, text := call(t, "PUT", w.url+"/v1/tenants/acme/uploads?path=../outputs/f", "x"); status != http.StatusUnprocessableEntity && status != http.StatusBadRequest {
		t.Errorf("upload out of the uploads = %d %s", status, text)
	}

	// Nothing of it is in another tenant's sandbox.
	w.want("other", "root", "ls -A /workspace /mnt/user-data/outputs /mnt/user-data/uploads", "/mnt/user-data/outputs:\n\n/mnt/user-data/uploads:\n\n/workspace:")
	if w.mounted() != 2 {
		t.Errorf("%d disks of tenants are mounted, want 2", w.mounted())
	}
}

// TestTenantQuota: the disk of a tenant is full for all of its sandboxes at
// once, for nobody else, and takes no more of the host.
func TestTenantQuota(t *testing.T) {
	t.Parallel()
	w := newTenantWorld(t)
	w.create("other", "other", "gvisor")
	for _, id := range []string{"g", "c"} {
		w.want(id, "root", "dd if=/dev/zero of=/workspace/big bs=1M count=200 2>&1 | grep -o 'No space left on device'; sync", "No space left on device")
		w.want(id, "sandbox", "head -c 10M /dev/zero >/mnt/user-data/outputs/more 2>/dev/null || echo full; echo own >/home/sandbox/f && cat /home/sandbox/f", "full\nown")
		w.sh(id, "root", "rm -f /workspace/big /mnt/user-data/outputs/more")
		w.want(id, "sandbox", "echo room >/workspace/f && cat /workspace/f", "room")
	}
	w.want("other", "sandbox", "head -c 10M /dev/zero >/workspace/f && stat -c %s /workspace/f", "10485760")
	var tenant struct {
		Disk struct {
			Bytes     int64 `json:"bytes"`
			Allocated int64 `json:"allocated_bytes"`
		} `json:"disk"`
	}
	_, text := call(t, "GET", w.url+"/v1/tenants/acme", "")
	if err := json.Unmarshal([]byte(text), &tenant); err != nil || tenant.Disk.Bytes != 64<<20 || tenant.Disk.Allocated > 64<<20+1<<20 {
		t.Errorf("the tenant is %s, %v", text, err)
	}
}

// TestTenantFilesOutliveEverything kills the daemon while a tenant's sandboxes
// run, and while only a stopped one is read: its disk stays usable, the files
// stay, and it is not mounted when nobody uses it.
func TestTenantFilesOutliveEverything(t *testing.T) {
	t.Parallel()
	w := newTenantWorld(t)
	restart := func() {
		t.Helper()
		if err := w.h.kill(); err != nil {
			t.Fatal(err)
		}
		w.start()
	}
	w.want("g", "sandbox", "echo kept >/workspace/f; cat /workspace/f", "kept")
	restart()
	w.want("c", "sandbox", "cat /workspace/f; echo more >>/workspace/f", "kept")
	w.want("g", "sandbox", "cat /workspace/f", "kept\nmore")
	w.create("g2", "acme", "gvisor")
	w.want("g2", "sandbox", "cat /workspace/f", "kept\nmore")
	for _, id := range []string{"g", "g2"} {
		if status, text := call(t, "DELETE", w.url+"/v1/sandboxes/"+id, ""); status != http.StatusNoContent {
			t.Fatalf("destroy = %d %s", status, text)
		}
	}
	if w.mounted() != 1 {
		t.Errorf("the disk is mounted %d times while a sandbox runs", w.mounted())
	}
	if status, text := call(t, "POST", w.url+"/v1/sandboxes/c/stop", ""); status != http.StatusOK {
		t.Fatalf("stop = %d %s", status, text)
	}
	if w.mounted() != 0 {
		t.Error("the disk is mounted while no sandbox runs")
	}
	if _, text := call(t, "GET", w.url+"/v1/sandboxes/c/files/content?path=/workspace/f", ""); text != "kept\nmore\n" {
		t.Errorf("the file of a stopped sandbox is %q", text)
	}
	if w.mounted() != 1 {
		t.Error("the files of a stopped sandbox were read without its disk")
	}
	restart()
	// This waits until what the other daemon left is cleared up.
	if status, text := call(t, "DELETE", w.url+"/v1/tenants/acme", ""); status != http.StatusConflict {
		t.Errorf("removing a tenant with a stopped sandbox = %d %s", status, text)
	}
	if w.mounted() != 0 {
		t.Error("a daemon that was killed left the disk mounted")
	}
	if status, text := call(t, "POST", w.url+"/v1/sandboxes/c/start", ""); status != http.StatusOK {
		t.Fatalf("start = %d %s", status, text)
	}
	w.want("c", "sandbox", "cat /workspace/f", "kept\nmore")
	if status, text := call(t, "DELETE", w.url+"/v1/sandboxes/c", ""); status != http.StatusNoContent {
		t.Fatalf("destroy = %d %s", status, text)
	}
	w.create("g", "acme", "gvisor")
	w.want("g", "sandbox", "cat /workspace/f", "kept\nmore")
	if status, text := call(t, "DELETE", w.url+"/v1/sandboxes/g", ""); status != http.StatusNoContent {
		t.Fatalf("destroy = %d %s", status, text)
	}
	if status, text := call(t, "DELETE", w.url+"/v1/tenants/acme", ""); status != http.StatusNoContent {
		t.Errorf("removing the tenant = %d %s", status, text)
	}
	if w.mounted() != 0 {
		t.Error("the disk of a removed tenant is mounted")
	}
}
