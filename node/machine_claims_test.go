package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// root makes a root directory.
func root(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestClaims(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "claims")
	a, b := root(t, "a"), root(t, "b")
	pods := Claim{Kind: "cgroup", Name: "/kubepods", Set: "cgroupRoot"}
	logs := Claim{Kind: "directory", Name: "/var/log/pods", Set: "podLogsDir"}
	own := Claim{Kind: "directory", Name: "/kubepods", Set: "podLogsDir"} // of the same name
	take := func(rootDir string, claims ...Claim) error {
		t.Helper()
		return TakeClaims(t.Context(), dir, rootDir, claims...)
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	refused := func(err error, want ...string) {
		t.Helper()
		if !errors.Is(err, ErrClaimed) {
			t.Fatalf("%v; want an ErrClaimed", err)
		}
		var one *ClaimedError
		if !errors.As(err, &one) || !strings.HasPrefix(one.RootDir, a) {
			t.Errorf("%+v; want one of %s", one, a)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q; want %q", err, w)
			}
		}
	}

	ok(take(a, pods, logs))
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v; want mode 0700", info.Mode(), err)
	}
	refused(take(b, pods, logs, own),
		`cgroup "/kubepods" is used by the agent with root directory "`+a+`"; that agent is not running, but its containers may be: set cgroupRoot to another one, or remove `+
			filepath.Join(dir, claimFile(a))+" if that agent is gone for good\n", `directory "/var/log/pods"`, "set podLogsDir to another one")
	ok(take(b, own))

	lock, err := LockRoot(a)
	ok(err)
	refused(take(b, pods), ", process "+strconv.Itoa(os.Getpid())+": set cgroupRoot to another one")
	lock.Release()

	ok(take(a, pods, logs)) // it begins again
	link := a + "-link"
	ok(os.Symlink(a, link))
	ok(take(link, pods)) // by another path: what it used before is not another's
	refused(func() error { err := take(b, pods); ok(take(a, pods)); return err }(), link)

	ok(take(a, logs)) // set to another one meanwhile
	ok(take(b, pods, own))
	ok(DropClaims(t.Context(), dir, b))
	ok(DropClaims(t.Context(), dir, b)) // there is nothing
	ok(take(a, pods, logs))

	ok(os.RemoveAll(a)) // with an agent's root directory, all of it is gone
	ok(take(b, pods, logs))
	if _, err := os.Stat(filepath.Join(dir, claimFile(a))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record of an agent that is gone: %v", err)
	}
	ok(DropClaims(t.Context(), filepath.Join(dir, "none"), b))
}

// What is not this user's alone is not believed, and not written to.
func TestClaimsOfStrangers(t *testing.T) {
	ours, dir := root(t, "ours"), filepath.Join(t.TempDir(), "claims")
	refused := func(want string) {
		t.Helper()
		err := TakeClaims(t.Context(), dir, ours, Claim{Kind: "k", Name: "n"})
		if err == nil || errors.Is(err, ErrClaimed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if err := os.Symlink(root(t, "elsewhere"), dir); err != nil {
		t.Fatal(err)
	}
	refused("want a directory of the agent's user alone")
	_ = os.Remove(dir)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o750)); err != nil {
		t.Fatal(err)
	}
	refused("want a directory of the agent's user alone")
	_ = os.Chmod(dir, 0o700)
	for _, name := range []string{"lock", "0123456789abcdef.json"} { // the second of them comes to have a lock beside it
		if err := os.Symlink("/dev/zero", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		refused(name)
		_ = os.Remove(filepath.Join(dir, name))
	}
	for name, text := range map[string]string{"1.json": "{", "2.json": "", "3.json": `{"rootDir": "", "claims": [{"kind": "k", "name": "n"}]}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := TakeClaims(t.Context(), dir, ours, Claim{Kind: "k", Name: "n"}); err != nil {
		t.Errorf("beside records that are damaged: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.json")); len(left) != 1 || err != nil {
		t.Errorf("%q is left, %v", left, err)
	}
}

// Others that take claims are waited for, and not for ever.
func TestClaimsAreTakenOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, a := filepath.Join(t.TempDir(), "claims"), root(t, "a")
		held, err := openClaims(t.Context(), dir, "/other")
		if err != nil {
			t.Fatal(err)
		}
		release := time.AfterFunc(time.Second, held.close)
		if err := TakeClaims(t.Context(), dir, a); err != nil || release.Stop() {
			t.Errorf("%v; want it to have waited", err)
		}
		if held, err = openClaims(t.Context(), dir, "/other"); err != nil {
			t.Fatal(err)
		}
		defer held.close()
		if err := TakeClaims(t.Context(), dir, a); err == nil || !strings.Contains(err.Error(), "has had the lock for 10s") {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := TakeClaims(ctx, dir, a); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
