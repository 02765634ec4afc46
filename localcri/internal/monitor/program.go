//go:build linux

package monitor

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/nodewright/nodewright/internal/durable"
)

// programName is the prefix of the names of placed programs.
const programName = "nodewright-monitor"

// Carried returns nil if this package embeds the monitor program for the current architecture.
func Carried() error {
	if program == "" {
		return fmt.Errorf("no monitor program for %s is built in; want the path of the program that \"CGO_ENABLED=0 go install github.com/nodewright/nodewright/localcri/%s@latest\" builds", runtime.GOARCH, programName)
	}
	return nil
}

// Place writes the embedded program into a directory, which it creates, and returns its path. The
// file name contains a hash of the content, so that running monitors keep their program. An
// intact file is not written again.
func Place(dir string) (string, error) {
	if err := Carried(); err != nil {
		return "", err
	}
	r, err := gzip.NewReader(strings.NewReader(program))
	if err != nil {
		return "", fmt.Errorf("unpack the monitor program: %w", err)
	}
	unpacked, err := io.ReadAll(r) //nolint:forbidigo // it is part of this package
	if err != nil {
		return "", fmt.Errorf("unpack the monitor program: %w", err)
	}
	return place(dir, unpacked)
}

func place(dir string, content []byte) (string, error) {
	sum := sha256.Sum256(content)
	name := programName + "-" + hex.EncodeToString(sum[:8])
	d := durable.Dir{Path: dir, Disk: durable.OS{DirMode: 0o700, FileMode: 0o700, Limit: int64(len(content))}, Sync: true}
	if there, err := d.Read(name); err != nil || !bytes.Equal(there, content) {
		if err := d.Prepare(); err != nil {
			return "", err
		}
		if err := d.Replace(name, content); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, name), nil
}
