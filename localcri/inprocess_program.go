package localcri

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/nodewright/nodewright/internal/safefile"
)

// monitorName is what the monitor's program is called where it is installed.
const monitorName = "nodewright-monitor"

// maxProgram is more than any monitor has, in bytes.
const maxProgram = 64 << 20

// place writes a program below dir, by its content, unless it is there, and returns
// its path. Monitors that run keep theirs: another program has another name.
func place(dir string, program []byte) (string, error) {
	sum := sha256.Sum256(program)
	name := monitorName + "-" + hex.EncodeToString(sum[:8])
	path := filepath.Join(dir, name)
	if b, err := safefile.ReadFile(path, maxProgram); err == nil && same(b, program) {
		return path, nil
	}
	program, err := unpacked(program)
	if err == nil {
		err = install(dir, name, program)
	}
	if err != nil {
		return "", fmt.Errorf("place the monitor program: %w", err)
	}
	return path, nil
}

// gzipMagic begins what RFC 1952 has; no program begins so.
var gzipMagic = []byte{0x1f, 0x8b}

// gzipTrailer is how long the checksum and the length at its end are together.
const gzipTrailer = 8

// same reports whether a file is the one that program is, or has packed.
func same(file, program []byte) bool {
	if !bytes.HasPrefix(program, gzipMagic) {
		return bytes.Equal(file, program)
	}
	if len(program) < gzipTrailer {
		return false
	}
	trailer := program[len(program)-gzipTrailer:]
	return binary.LittleEndian.Uint32(trailer) == crc32.ChecksumIEEE(file) && int64(binary.LittleEndian.Uint32(trailer[4:])) == int64(len(file))
}

// unpacked is the program itself.
func unpacked(program []byte) ([]byte, error) {
	if !bytes.HasPrefix(program, gzipMagic) {
		return program, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(r, maxProgram+1))
	if err == nil && len(out) > maxProgram {
		err = fmt.Errorf("more than %d bytes", maxProgram)
	}
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	return out, nil
}

// install writes a program whole or not at all.
func install(dir, name string, program []byte) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, name+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(program)
	if err = errors.Join(err, f.Chmod(0o700), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, name))
}

// findMonitor looks for the monitor's program beside this one and where programs are.
func findMonitor() (string, error) {
	self, err := os.Executable()
	if err == nil {
		if path := filepath.Join(filepath.Dir(self), monitorName); executable(path) {
			return path, nil
		}
	}
	path, err := exec.LookPath(monitorName)
	if err != nil {
		return "", fmt.Errorf("this program carries no monitor, and none is beside it or in the PATH: want %s, which \"go build -o %s ./localcri/monitor/cmd\" makes", monitorName, monitorName)
	}
	return filepath.Abs(path)
}

func executable(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}

// findExecutors finds the OCI runtimes of the machine by their names.
func findExecutors() (map[string]string, error) {
	found := map[string]string{}
	for _, name := range []string{"runc", "crun"} {
		path, err := exec.LookPath(name)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		switch {
		case err == nil:
			found[name] = path
		case !errors.Is(err, exec.ErrNotFound) && !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("find %s: %w", name, err)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("neither runc nor crun is in the PATH; want one of them installed")
	}
	return found, nil
}
