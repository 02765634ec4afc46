package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nodewright/nodewright/internal/durable"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestReadBackWhatWasWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := open(t, dir)
	for _, v := range [][]byte{{}, []byte("x"), bytes.Repeat([]byte("long"), 100000)} {
		if err := s.Write("key", v); err != nil {
			t.Fatal(err)
		}
		if got, err := open(t, dir).Read("key"); err != nil || !bytes.Equal(got, v) {
			t.Errorf("read %d bytes, %v; want %d", len(got), err, len(v))
		}
	}
	if keys, err := s.Keys(); err != nil || !slices.Equal(keys, []string{"key"}) {
		t.Errorf("keys %v, %v", keys, err)
	}
	for range 2 {
		if err := s.Delete("key"); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Read("key"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read of a deleted key: %v", err)
	}
}

func TestBadKeysAreRefused(t *testing.T) {
	s := open(t, t.TempDir())
	for _, key := range []string{"", ".", "..", "a/b", ".hidden", "x.tmp", "x.corrupt-1", "a b", "ä", strings.Repeat("x", 201)} {
		if err := s.Write(key, nil); err == nil || !strings.Contains(err.Error(), strconv.Quote(key)) {
			t.Errorf("key %q: %v", key, err)
		}
	}
}

func TestDamageIsSetAside(t *testing.T) {
	dir := t.TempDir()
	var told []string
	s, err := Open(Config{Dir: dir, OnCorrupt: func(key, aside string, err error) {
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("cause %v", err)
		}
		told = append(told, key+" "+filepath.Base(aside))
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Write("key", []byte("value")); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, "key"), 10); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read("key"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("read of a damaged value: %v", err)
		}
	}
	if want := []string{"key key.corrupt-1", "key key.corrupt-2"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	if keys, _ := s.Keys(); len(keys) != 0 {
		t.Errorf("keys %v after the damage", keys)
	}
	if err := s.Write("key", []byte("new")); err != nil {
		t.Error(err)
	}
}

// errPower is the crash of a simulated machine.
var errPower = errors.New("power failed")

// disk is a machine whose power fails at a step. Data that was not synced may be lost, torn or
// complete; synced data is complete.
type disk struct {
	steps, failAt int
	syncs         int
	files         map[string][]byte // as programs see them
	durable       map[string][]byte // as they are after a crash
	torn          func([]byte) []byte
}

func (d *disk) step() error {
	if d.steps++; d.steps == d.failAt {
		return errPower
	}
	if d.failAt > 0 && d.steps > d.failAt {
		return errPower
	}
	return nil
}

func (d *disk) MakeDir(string) error { return nil }

func (d *disk) Write(path string, data []byte, sync bool) error {
	if err := d.write(path, data); err != nil || !sync {
		return err
	}
	d.syncs++
	d.durable[path] = data
	return d.step()
}

func (d *disk) write(path string, data []byte) error {
	// Created and empty, then partly written, then whole and not synced.
	for _, b := range [][]byte{nil, data[:len(data)/2], data} {
		d.files[path] = b
		d.durable[path] = d.torn(b)
		if err := d.step(); err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) Rename(from, to string) error {
	if _, ok := d.files[from]; !ok {
		return fs.ErrNotExist
	}
	d.files[to] = d.files[from]
	delete(d.files, from)
	if err := d.step(); err != nil {
		return err // the directory was not synced: the old names are back
	}
	d.durable[to] = d.durable[from]
	delete(d.durable, from)
	return d.step()
}

func (d *disk) Remove(path string) error {
	if _, ok := d.files[path]; !ok {
		return fs.ErrNotExist
	}
	delete(d.files, path)
	if err := d.step(); err != nil {
		return err
	}
	delete(d.durable, path)
	return nil
}

func (d *disk) SyncDir(string) error {
	d.syncs++
	return d.step()
}

func (d *disk) Read(path string) ([]byte, error) {
	if b, ok := d.files[path]; ok {
		return bytes.Clone(b), nil
	}
	return nil, fs.ErrNotExist
}

func (d *disk) List(dir string) ([]string, error) {
	var out []string
	for p := range d.files {
		if filepath.Dir(p) == dir {
			out = append(out, filepath.Base(p))
		}
	}
	slices.Sort(out)
	return out, nil
}

func TestPowerFailsAtEveryStep(t *testing.T) {
	tears := map[string]func([]byte) []byte{
		"kept": bytes.Clone, "lost": func([]byte) []byte { return nil },
		"half": func(b []byte) []byte { return bytes.Clone(b[:len(b)/2]) },
		"zeros": func(b []byte) []byte {
			return make([]byte, len(b))
		},
	}
	for name, torn := range tears {
		for failAt := 1; ; failAt++ {
			d := &disk{files: map[string][]byte{}, durable: map[string][]byte{}, torn: torn}
			s, err := Open(Config{Dir: "/d", files: d})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Write("key", []byte("old")); err != nil {
				t.Fatal(err)
			}
			d.failAt, d.steps = failAt, 0
			err = s.Write("key", []byte("the new value"))
			if err == nil {
				break // it got through
			}
			d.failAt = 0
			d.files = maps.Clone(d.durable) // the machine is back
			s, oerr := Open(Config{Dir: "/d", files: d})
			if oerr != nil {
				t.Fatalf("%s, step %d: Open: %v", name, failAt, oerr)
			}
			got, rerr := s.Read("key")
			if rerr != nil || string(got) != "old" && string(got) != "the new value" {
				t.Errorf("%s, step %d: read %q, %v", name, failAt, got, rerr)
			}
			if err := s.Write("key", []byte("next")); err != nil {
				t.Errorf("%s, step %d: %v", name, failAt, err)
			}
		}
	}
}

// An unsynced value is always the old one, the new one or missing; missing only after a power
// failure, not after the process was killed.
func TestNoSync(t *testing.T) {
	for _, power := range []bool{false, true} {
		for failAt := 1; ; failAt++ {
			d := &disk{files: map[string][]byte{}, durable: map[string][]byte{}, torn: func(b []byte) []byte { return b[:len(b)/2] }}
			s, err := Open(Config{Dir: "/d", NoSync: true, files: d})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.Write("gone", nil), s.Delete("gone"), s.Write("key", []byte("old"))); err != nil {
				t.Fatal(err)
			}
			d.failAt, d.steps = failAt, 0
			err = s.Write("key", []byte("the new value"))
			if d.syncs != 0 {
				t.Fatalf("synced %d times", d.syncs)
			}
			d.failAt = 0
			if power {
				d.files = maps.Clone(d.durable)
			}
			s, oerr := Open(Config{Dir: "/d", NoSync: true, files: d})
			if oerr != nil {
				t.Fatalf("step %d: Open: %v", failAt, oerr)
			}
			got, rerr := s.Read("key")
			whole := rerr == nil && (string(got) == "old" || string(got) == "the new value")
			if !whole && (!power || !errors.Is(rerr, fs.ErrNotExist)) {
				t.Errorf("power failed %v, step %d: read %q, %v", power, failAt, got, rerr)
			}
			if err == nil {
				break
			}
		}
	}
}

// killingFiles kills its own process at a step.
type killingFiles struct {
	durable.OS
	left *int
}

func (k killingFiles) step() {
	if *k.left--; *k.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (k killingFiles) Write(path string, data []byte, sync bool) error {
	k.step()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	k.step()
	for _, part := range [][]byte{data[:len(data)/2], data[len(data)/2:]} {
		if _, err := f.Write(part); err != nil {
			return err
		}
		k.step()
	}
	if sync {
		if err := f.Sync(); err != nil {
			return err
		}
		k.step()
	}
	return f.Close()
}

func (k killingFiles) Rename(from, to string) error {
	k.step()
	err := k.OS.Rename(from, to)
	k.step()
	return err
}

func (k killingFiles) SyncDir(path string) error {
	err := k.OS.SyncDir(path)
	k.step()
	return err
}

// A process that is killed after any of its system calls leaves the old value
// or the new one.
func TestKilledAtEveryStep(t *testing.T) {
	if dir := os.Getenv("CHECKPOINT_DIR"); dir != "" {
		left, err := strconv.Atoi(os.Getenv("CHECKPOINT_STEP"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(Config{Dir: dir, NoSync: os.Getenv("CHECKPOINT_NOSYNC") != "", files: killingFiles{OS: durable.OS{DirMode: 0o700, FileMode: 0o600}, left: &left}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Write("key", []byte("the new value")); err != nil {
			t.Fatal(err)
		}
		return
	}
	for mode, least := range map[string]int{"": 8, "nosync": 6} {
		killAtEveryStep(t, mode, least)
	}
}

// killAtEveryStep tries it with files that are synced, or are not.
func killAtEveryStep(t *testing.T, noSync string, least int) {
	for step := 1; ; step++ {
		dir := t.TempDir()
		if err := open(t, dir).Write("key", []byte("old")); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledAtEveryStep$")
		cmd.Env = append(os.Environ(), "CHECKPOINT_DIR="+dir, "CHECKPOINT_NOSYNC="+noSync, "CHECKPOINT_STEP="+strconv.Itoa(step))
		err := cmd.Run()
		got, rerr := open(t, dir).Read("key")
		if rerr != nil || string(got) != "old" && string(got) != "the new value" {
			t.Errorf("killed at step %d: read %q, %v", step, got, rerr)
		}
		if names, _ := os.ReadDir(dir); len(names) != 1 {
			t.Errorf("killed at step %d: %v is left", step, names)
		}
		if err == nil {
			if step < least {
				t.Errorf("only %d steps", step)
			}
			return
		}
	}
}

// After any damage to a file, the result is the written value or none.
func FuzzDamage(f *testing.F) {
	f.Add([]byte("value"), 3, byte(1), 40)
	f.Add([]byte{}, 0, byte(255), 0)
	f.Fuzz(func(t *testing.T, value []byte, at int, flip byte, length int) {
		file := encode(value)
		if len(file) > 0 && at >= 0 {
			file[at%len(file)] ^= flip
		}
		if length >= 0 && length < len(file) {
			file = file[:length]
		}
		got, err := decode(file)
		if err == nil && !bytes.Equal(got, value) {
			t.Errorf("read %q, wrote %q", got, value)
		}
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("error %v", err)
		}
	})
}

func ExampleStore() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := Open(Config{Dir: dir})
	if err != nil {
		panic(err)
	}
	if err := s.Write("greeting", []byte("hello")); err != nil {
		panic(err)
	}
	value, err := s.Read("greeting")
	fmt.Printf("%s %v\n", value, err)
	// Output: hello <nil>
}
