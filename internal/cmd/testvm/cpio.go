package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// cpioWriter writes an archive in the "newc" format of cpio, which the kernel
// unpacks (Documentation/driver-api/early-userspace/buffer-format.rst). The owner
// is root and all times are zero, so that equal contents give equal bytes. Methods
// keep the first error, and close returns it.
type cpioWriter struct {
	w    io.Writer
	at   int64
	ino  int
	dirs map[string]bool
	err  error
}

func newCpioWriter(w io.Writer) *cpioWriter { return &cpioWriter{w: w, dirs: map[string]bool{}} }

// File types of a cpio entry's mode, as in stat(2).
const (
	cpioDir  = 0o040000
	cpioFile = 0o100000
	cpioChar = 0o020000
)

// dir writes a directory and its parents, each once.
func (c *cpioWriter) dir(name string) {
	if name == "." || c.dirs[name] {
		return
	}
	c.dir(path.Dir(name))
	c.dirs[name] = true
	c.entry(name, cpioDir|0o755, nil, 0, 0)
}

func (c *cpioWriter) file(name string, perm fs.FileMode, data []byte) {
	c.dir(path.Dir(name))
	c.entry(name, cpioFile|int(perm.Perm()), data, 0, 0)
}

func (c *cpioWriter) charDevice(name string, major, minor int) {
	c.dir(path.Dir(name))
	c.entry(name, cpioChar|0o600, nil, major, minor)
}

func (c *cpioWriter) close() error {
	c.ino = -1 // entry increments it: the trailer has inode 0
	c.entry("TRAILER!!!", 0, nil, 0, 0)
	return c.err
}

func (c *cpioWriter) entry(name string, mode int, data []byte, major, minor int) {
	if c.err == nil && (!fs.ValidPath(name) || int64(len(data)) > 1<<32-1) {
		c.err = errors.New("cpio: cannot hold " + name)
	}
	c.ino++
	nlink, mtime := 1, 0
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		c.ino, mode, 0, 0, nlink, mtime, len(data), 0, 0, major, minor, len(name)+1, 0)
	c.write([]byte(header + name + "\x00"))
	c.align()
	c.write(data)
	c.align()
}

func (c *cpioWriter) write(b []byte) {
	if c.err != nil {
		return
	}
	n, err := c.w.Write(b)
	c.at, c.err = c.at+int64(n), err
}

// align writes zero bytes until the length of the archive is a multiple of four.
func (c *cpioWriter) align() { c.write(make([]byte, -c.at&3)) }

// writeInitramfs writes the initramfs uncompressed: on the emulated machine,
// decompression takes longer than reading. self is the file of this program, as built for
// the machine.
func writeInitramfs(file, self string, p plan, modules []module) (err error) {
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriter(f)
	c := newCpioWriter(out)
	for _, d := range []string{"proc", "sys", "dev", hostDir, upperDir, rootDir} {
		c.dir(d)
	}
	c.charDevice("dev/console", 5, 1) // the kernel opens it for init
	c.file("init", 0o755, program)
	for _, m := range modules {
		name := "modules/" + m.name + ".ko"
		c.file(name, 0o644, m.data)
		p.Modules = append(p.Modules, name)
	}
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	c.file(planFile, 0o644, b)
	return errors.Join(c.close(), out.Flush())
}
