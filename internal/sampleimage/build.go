package sampleimage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/testprogram"
)

// References of the images that [Build] builds.
const (
	Pause   = "localhost/pause:1"
	Web     = "localhost/nodewright/web:1"
	Sidecar = "localhost/nodewright/sidecar:1"
	Init    = "localhost/nodewright/init:1"
	Testbox = "localhost/nodewright/testbox:1"
)

// samples lists the programs in examples/images with their images.
var samples = []struct {
	dir string
	img Image
}{
	{"pause", Image{Name: Pause, User: "65535:65535"}},
	{"web", Image{Name: Web, Ports: []string{"8080/tcp"}}},
	{"sidecar", Image{Name: Sidecar}},
	{"init", Image{Name: Init}},
	{"testbox", Image{Name: Testbox, Env: []string{"TESTBOX=1"}}},
}

// Build compiles the sample programs of the repository, writes an image archive for each
// into the directory out, and returns the paths of the archives. It needs the go command,
// but no network, since the programs use only the standard library.
func Build(ctx context.Context, repository, out string) (archives []string, err error) {
	out, err = filepath.Abs(out)
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(out, "bin")
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	unlock, err := lock(filepath.Join(out, ".lock"))
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", out, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()

	var programs []string
	for _, s := range samples {
		programs = append(programs, "./examples/images/"+s.dir)
	}
	if err := testprogram.Compile(ctx, repository, bin+"/", programs...); err != nil {
		return nil, fmt.Errorf("build sample programs: %w", err)
	}
	for _, s := range samples {
		archive := filepath.Join(out, s.dir+".tar")
		if err := pack(archive, filepath.Join(bin, s.dir), s.img); err != nil {
			return nil, fmt.Errorf("image %s: %w", s.img.Name, err)
		}
		archives = append(archives, archive)
	}
	return archives, nil
}

// pack writes an image archive of img with program as its entry point. It does nothing if
// the archive is newer than the program.
func pack(archive, program string, img Image) error {
	from, err := os.Stat(program)
	if err != nil {
		return err
	}
	if to, err := os.Stat(archive); err == nil && to.ModTime().After(from.ModTime()) {
		return nil
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	name := "/" + filepath.Base(program)
	img.Architecture, img.Entrypoint = runtime.GOARCH, []string{name}
	if !hasPath(img.Env) {
		img.Env = append([]string{"PATH=/"}, img.Env...)
	}
	img.Files = append(img.Files,
		File{Path: name, Mode: 0o755, Data: data},
		File{Path: "/tmp/", Mode: 0o1777},
		File{Path: "/etc/passwd", Mode: 0o644, Data: []byte("root:x:0:0:root:/:/none\nnobody:x:65534:65534:nobody:/:/none\nmember:x:4001:4001:member:/:/none\n")},
		File{Path: "/etc/group", Mode: 0o644, Data: []byte("root:x:0:\nnobody:x:65534:\nmember:x:4001:\nclub:x:4242:member\n")},
	)
	var buf bytes.Buffer
	if err := Write(&buf, img); err != nil {
		return err
	}
	part := archive + ".part"
	if err := os.WriteFile(part, buf.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(part, archive)
}

func hasPath(env []string) bool {
	for _, e := range env {
		if strings.HasPrefix(e, "PATH=") {
			return true
		}
	}
	return false
}

func lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil // closing releases the lock
}
