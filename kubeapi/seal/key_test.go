package seal

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nodewright/nodewright/internal/safefile"
)

// A key that somebody else could have read or written is refused.
func TestKeyOfOthers(t *testing.T) {
	for _, tc := range []struct {
		mode        fs.FileMode
		owner, self int
		want        string // in the error
	}{
		{0o600, 0, 0, ""},
		{0o400, 0, 0, ""},
		{0o400, 0, 1000, ""}, // a credential of systemd
		{0o600, 1000, 1000, ""},
		{0o600, 1000, 0, "owner is user 1000; want root"},
		{0o600, 1, 1000, "owner is user 1; want root"},
		{0o640, 0, 0, "mode is 0640"},
		{0o620, 0, 0, "mode is 0620"},
		{0o604, 0, 0, "mode is 0604"},
		{0o602, 0, 0, "mode is 0602"},
	} {
		err := private(tc.mode, tc.owner, tc.self)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

// Whatever is found in the place of a key, reading it ends at once.
func TestHostileKeyFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		syscall.Mkfifo(at("pipe"), 0o600), os.WriteFile(at("huge"), nil, 0o600), os.Truncate(at("huge"), 1<<40), os.Mkdir(at("dir"), 0o700),
		os.Symlink("pipe", at("link")), os.Symlink("loop", at("loop")),
	); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{
		"pipe": safefile.ErrNotRegular, "dir": safefile.ErrNotRegular, "link": safefile.ErrNotRegular, "huge": safefile.ErrTooLarge, "loop": nil, "none": fs.ErrNotExist,
	} {
		_, err := Open(at(name))
		if err == nil || want != nil && !errors.Is(err, want) || !strings.Contains(err.Error(), at(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The machine's key is made once, and is for its owner alone.
func TestMachineKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret.key")
	old := syscall.Umask(0)
	first, err := Machine(file, func(string, error) { t.Error("a key that was never there is lost") })
	syscall.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(file); err != nil || info.Mode() != 0o600 || info.Size() != keySize {
		t.Errorf("%v, %v", info, err)
	}
	sealed, err := first.Seal("n", []byte("hidden"))
	if err != nil || bytes.Contains(sealed, []byte("hidden")) {
		t.Fatalf("%q, %v", sealed, err)
	}
	second, err := Machine(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := second.Unseal("n", sealed); string(got) != "hidden" || err != nil {
		t.Errorf("after a restart: %q, %v", got, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	third, err := Machine(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := third.Unseal("n", sealed); !errors.Is(err, ErrWrongKey) {
		t.Errorf("with another key: %v", err)
	}
}

// What a crash or a disk has left of the key is kept aside, told, and replaced; a
// key that others may read is refused.
func TestMachineKeyIsDamaged(t *testing.T) {
	for name, make := range map[string]func(file string) error{
		"empty":      func(f string) error { return os.WriteFile(f, nil, 0o600) },
		"zeros":      func(f string) error { return os.WriteFile(f, make([]byte, keySize), 0o600) },
		"too long":   func(f string) error { return errors.Join(os.WriteFile(f, nil, 0o600), os.Truncate(f, 1<<40)) },
		"a pipe":     func(f string) error { return syscall.Mkfifo(f, 0o600) },
		"half-made":  func(f string) error { return os.WriteFile(f+".tmp", []byte("k"), 0o600) },
		"not a file": func(f string) error { return os.Mkdir(f, 0o700) },
	} {
		file := filepath.Join(t.TempDir(), "secret.key")
		if err := make(file); err != nil {
			t.Fatal(err)
		}
		var told []string
		s, err := Machine(file, func(aside string, err error) {
			if err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("%s: %v", name, err)
			}
			told = append(told, filepath.Base(aside))
		})
		if err != nil || !s.Encrypts() {
			t.Errorf("%s: %v", name, err)
			continue
		}
		lost := name != "half-made"
		if _, err := os.Lstat(file + ".corrupt-1"); (err == nil) != lost || (len(told) == 1 && told[0] == "secret.key.corrupt-1") != lost {
			t.Errorf("%s: told %v, set aside %v", name, told, err)
		}
		if _, err := os.Lstat(file + ".tmp"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: half a key is left, %v", name, err)
		}
	}
	file := filepath.Join(t.TempDir(), "secret.key")
	if err := errors.Join(os.WriteFile(file, bytes.Repeat([]byte("k"), keySize), 0o600), os.Chmod(file, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := Machine(file, nil); err == nil || !strings.Contains(err.Error(), file+": mode is 0644") {
		t.Errorf("readable for all: %v", err)
	}
}

// Two that make a key at a time have the same one, or an error.
func TestMachineKeyIsMadeOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret.key")
	var wg sync.WaitGroup
	all := make([]*Sealer, 8)
	for i := range all {
		wg.Go(func() { all[i], _ = Machine(file, nil) })
	}
	wg.Wait()
	last, err := Machine(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s == nil {
			continue
		}
		sealed, err := s.Seal("n", []byte("hidden"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := last.Unseal("n", sealed); err != nil {
			t.Errorf("two keys: %v", err)
		}
	}
}

func TestClear(t *testing.T) {
	var none *Sealer
	for _, s := range []*Sealer{Clear(), none} {
		if b, err := s.Seal("n", []byte("x")); string(b) != "x" || err != nil || s.Encrypts() {
			t.Errorf("%q, %v", b, err)
		}
		if b, err := s.Unseal("n", []byte("x")); string(b) != "x" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		if _, err := s.Unseal("n", mark); !errors.Is(err, ErrNoKey) {
			t.Error(err)
		}
	}
}

func FuzzKey(f *testing.F) {
	f.Add([]byte("0123456789abcdef0123456789abcdef"))
	f.Add(bytes.Repeat([]byte("6b"), keySize))
	f.Fuzz(func(t *testing.T, b []byte) {
		key, err := parseKey(b)
		if (err == nil) != (len(key) == keySize) || err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("%q: %d bytes, %v", b, len(key), err)
		}
	})
}
