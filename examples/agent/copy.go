package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nodewright/nodewright/agent/local"
)

// copyFlags are the flags of "agent cp".
type copyFlags struct {
	clientFlags
	container  string
	noPreserve bool
}

func newCopy(std stdio) *cobra.Command {
	var c copyFlags
	cmd := &cobra.Command{
		Use: "cp SOURCE TARGET", Short: "Copy files between this machine and a container",
		Long: "Copy files and directories between this machine and a container, whose path is NAME:PATH or NAMESPACE/NAME:PATH.\nThe container needs the program tar. Links from a container are left out, and no link is followed.",
		Example: `  agent cp web:/etc/hosts hosts
  agent cp web:/var/log ./logs -c side
  agent cp page.html web:/www/`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("cp needs a source and a target, and one of them must be NAME:PATH")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.copy(cmd.Context(), std, args[0], args[1]) },
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			names, _ := c.from(c.pods)(cmd, nil, toComplete)
			for i, name := range names {
				name, _, _ = strings.Cut(name, "\t")
				names[i] = name + ":"
			}
			return names, cobra.ShellCompDirectiveNoSpace // the shell also completes files
		},
	}
	c.registerPods(cmd)
	cmd.Flags().StringVarP(&c.container, "container", "c", "", "the `container`; by default the first")
	cmd.Flags().BoolVar(&c.noPreserve, "no-preserve", false, "do not keep owners and modes of files that are copied to a container")
	completeFlag(cmd, "container", c.from(func(ctx context.Context, args []string) []string {
		for _, a := range args {
			if pod, _, ok := inPod(a); ok {
				return c.containers(ctx, []string{pod})
			}
		}
		return nil
	}))
	return cmd
}

// inPod splits NAME:PATH. An argument that begins with . or / is a file of this
// machine.
func inPod(arg string) (pod, file string, ok bool) {
	pod, file, ok = strings.Cut(arg, ":")
	if !ok || strings.HasPrefix(arg, ".") || strings.HasPrefix(arg, "/") {
		return "", "", false
	}
	return pod, file, true
}

func (c *copyFlags) copy(ctx context.Context, std stdio, source, target string) error {
	fromPod, fromFile, down := inPod(source)
	toPod, toFile, up := inPod(target)
	switch {
	case down == up:
		return fmt.Errorf("cp %q %q: want one of them to be NAME:PATH", source, target)
	case down && (fromPod == "" || fromFile == ""):
		return fmt.Errorf("%q: want NAME:PATH", source)
	case up && (toPod == "" || toFile == ""):
		return fmt.Errorf("%q: want NAME:PATH", target)
	case down:
		return c.download(ctx, std, fromPod, fromFile, target)
	default:
		return c.upload(ctx, std, source, toPod, toFile)
	}
}

// run runs a command in the container.
func (c *copyFlags) run(ctx context.Context, std stdio, pod string, stdin bool, command ...string) error {
	return c.exec(ctx, std, pod, local.ExecRequest{Container: c.container, Command: command, Stdin: stdin})
}

// download runs tar in the container to create an archive, and unpacks the archive on
// this machine.
func (c *copyFlags) download(ctx context.Context, std stdio, pod, source, target string) error {
	dir, base := path.Split(path.Clean(source))
	if base == "" || base == "." || base == ".." { // the root of the container, or its working directory
		dir, base = path.Clean(source), "."
	}
	if dir == "" {
		dir = "."
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := c.run(ctx, stdio{in: strings.NewReader(""), out: w, err: std.err}, pod, false, "tar", "cf", "-", "-C", dir, "./"+base)
		_ = w.CloseWithError(err)
		ended <- err
	}()
	err := untar(r, base, target, func(format string, args ...any) { fmt.Fprintf(std.err, format+"\n", args...) })
	_ = r.CloseWithError(errUnpacked) // otherwise the container would block on its output
	if err != nil {
		cancel()
	}
	if runErr := <-ended; runErr != nil && (err == nil || errors.Is(err, runErr)) {
		return runErr
	}
	return err
}

var (
	errUnpacked = errors.New("the archive is unpacked")
	errNoFile   = errors.New("the container sent no file")
)

// maxCopied is the maximum number of files in one copy. It stops an endless archive of a malicious
// container.
const maxCopied = 1_000_000

// maxName is the maximum length of a path in an archive in bytes: PATH_MAX of Linux.
const maxName = 4096

// unpacked is a target on this machine. Whatever the archive contains, its methods write nothing
// outside of the target, and follow no link in the target.
type unpacked struct {
	root *os.Root
	// only is the name of the target in root if the source is a file; "" for a directory.
	only string
	say  func(format string, args ...any)
}

// untar unpacks an archive of a file or directory named base. If base is a file, it is written to
// target, or into target if target is a directory. If base is a directory, its files are written
// below target.
func untar(from io.Reader, base, target string, say func(format string, args ...any)) (err error) {
	in := tar.NewReader(from)
	var to *unpacked
	defer func() {
		if to != nil {
			_ = to.root.Close()
		}
	}()
	for n := 0; ; n++ {
		h, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			_, err := io.Copy(io.Discard, from) // the zero blocks after the end of the archive
			if err == nil && n == 0 {
				err = errNoFile
			}
			return err
		case err != nil:
			return err
		case n == maxCopied:
			return fmt.Errorf("more than %d files; want less", maxCopied)
		case len(h.Name) > maxName || len(h.Linkname) > maxName:
			return fmt.Errorf("the archive has a name of %d bytes; want at most %d", max(len(h.Name), len(h.Linkname)), maxName)
		}
		name, ok := below(base, h.Name)
		if !ok {
			return fmt.Errorf("the archive has %q, which is not below %q: nothing is written there", oneLine(h.Name), base)
		}
		if to == nil {
			if to, err = openTarget(h, base, target, say); err != nil {
				return err
			}
		}
		if err := to.put(h, name, in); err != nil {
			return err
		}
	}
}

// below returns the path of an entry relative to base, "." for base itself. The path is local (see
// filepath.IsLocal). ok is false if the entry is not below base.
func below(base, entry string) (name string, ok bool) {
	if strings.Contains(entry, "\x00") || strings.HasPrefix(entry, "/") {
		return "", false
	}
	for part := range strings.SplitSeq(entry, "/") {
		if part == ".." {
			return "", false
		}
	}
	entry = path.Clean(entry)
	switch rest, ok := strings.CutPrefix(entry, base+"/"); {
	case base == ".":
		return entry, filepath.IsLocal(entry)
	case entry == base:
		return ".", true
	default:
		return rest, ok && filepath.IsLocal(rest)
	}
}

// openTarget opens the directory below which the entries are written. h is the header of the
// first entry: it shows whether the source is a file or a directory.
func openTarget(h *tar.Header, base, target string, say func(format string, args ...any)) (*unpacked, error) {
	dir, only := target, ""
	if h.Typeflag != tar.TypeDir {
		fi, err := os.Stat(target)
		switch {
		case err == nil && fi.IsDir():
			only = base
		case strings.HasSuffix(target, "/"):
			return nil, fmt.Errorf("%s: no such directory", target)
		default:
			dir, only = filepath.Dir(target), filepath.Base(target)
		}
	} else if err := os.MkdirAll(target, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &unpacked{root, only, say}, nil
}

// put writes one entry of the archive. It leaves out links and special files.
func (u *unpacked) put(h *tar.Header, name string, content io.Reader) error {
	switch {
	case u.only != "" && name != ".":
		return fmt.Errorf("the archive has %q below a file", oneLine(h.Name))
	case u.only != "":
		name = u.only
	}
	if err := u.noLinks(filepath.Dir(name)); err != nil {
		return err
	}
	mode := h.FileInfo().Mode().Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		if name == "." {
			return nil
		}
		if err := u.noLinks(name); err != nil {
			return err
		}
		return u.root.MkdirAll(name, 0o755)
	case tar.TypeReg:
		if err := u.root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		// An existing file may be a link or a device.
		if fi, err := u.root.Lstat(name); err == nil && !fi.Mode().IsRegular() {
			return fmt.Errorf("%s exists and is not a regular file (%v)", oneLine(name), fi.Mode())
		}
		f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	case tar.TypeSymlink, tar.TypeLink:
		u.say("left out: %s, a link to %s", oneLine(h.Name), oneLine(h.Linkname))
	default:
		u.say("left out: %s, neither a file nor a directory", oneLine(h.Name))
	}
	return nil
}

// noLinks returns an error if an existing element of a path below the target is not a
// directory, such as a symbolic link.
func (u *unpacked) noLinks(dir string) error {
	if dir == "." {
		return nil
	}
	if err := u.noLinks(filepath.Dir(dir)); err != nil {
		return err
	}
	fi, err := u.root.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !fi.IsDir():
		return fmt.Errorf("%s exists and is not a directory (%v)", oneLine(dir), fi.Mode())
	}
	return nil
}

// upload sends an archive of source to tar in the container.
func (c *copyFlags) upload(ctx context.Context, std stdio, source, pod, target string) error {
	source = filepath.Clean(source)
	if _, err := os.Lstat(source); err != nil {
		return err
	}
	quiet := stdio{in: strings.NewReader(""), out: io.Discard, err: io.Discard}
	dir, base := path.Split(path.Clean(target))
	var code exitError
	into := strings.HasSuffix(target, "/")
	if !into {
		err := c.run(ctx, quiet, pod, false, "test", "-d", target)
		if into = err == nil; err != nil && !errors.As(err, &code) && !errors.As(err, new(codedError)) { // the container may lack the program test
			return err
		}
	}
	if into {
		dir, base = target, filepath.Base(source)
	}
	if dir == "" {
		dir = "."
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(w, source, base)
		_ = w.CloseWithError(err)
		packed <- err
	}()
	command := []string{"tar", "xf", "-", "-C", dir}
	if c.noPreserve {
		command = []string{"tar", "--no-same-permissions", "--no-same-owner", "-xf", "-", "-C", dir}
	}
	err := c.run(ctx, stdio{in: r, out: std.out, err: std.err}, pod, true, command...)
	_ = r.CloseWithError(errUnpacked) // ends pack if tar has exited before the end of the archive
	if packErr := <-packed; packErr != nil && !errors.Is(packErr, errUnpacked) {
		return packErr
	}
	return err
}

// pack writes an archive of a file or a directory. In the archive, source has the name base. Links
// are archived as links.
func pack(to io.Writer, source, base string) error {
	out := tar.NewWriter(to)
	err := filepath.WalkDir(source, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		link := ""
		switch {
		case fi.Mode().IsRegular(), fi.IsDir():
		case fi.Mode()&fs.ModeSymlink != 0:
			if link, err = os.Readlink(file); err != nil {
				return err
			}
		default:
			return nil // leaves out special files, such as sockets
		}
		h, err := tar.FileInfoHeader(fi, link)
		if err != nil {
			return err
		}
		rest, err := filepath.Rel(source, file)
		if err != nil {
			return err
		}
		if h.Name = path.Join(base, filepath.ToSlash(rest)); fi.IsDir() {
			h.Name += "/"
		}
		h.Uname, h.Gname = "", "" // the container may have other names
		if err := out.WriteHeader(h); err != nil || !fi.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, f)
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return err
	}
	return out.Close()
}
