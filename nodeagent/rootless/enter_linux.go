package rootless

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/nodewright/nodewright/internal/ownerlock"
	"github.com/nodewright/nodewright/internal/safefile"
)

// Enter returns nil at once if the user is root. Otherwise it replaces this process by the same
// program with the same arguments, in the namespaces of the root directory, where the user is root;
// it starts their holder and their network if these do not run. It returns only an error, which has
// everything that the machine lacks.
func Enter(ctx context.Context, c Config) error {
	uid, rootDir := os.Geteuid(), c.RootDir
	if uid == 0 {
		return nil
	}
	if err := checkPorts(c.Ports); err != nil {
		return err
	}
	base, err := delegated(ctx)
	if err := lacks(uid, err); err != nil {
		return err
	}
	h, unlock, err := openHome(rootDir)
	if err != nil {
		return err
	}
	defer unlock()
	r := h.read()
	if r.Holder.lives(ctx) {
		at, err := cgroupOf(ctx, r.Holder.PID)
		if err != nil {
			return err
		}
		if baseOf(at) != base {
			return fmt.Errorf("namespaces of %s are in cgroup %s, and this process is in %s; start the agent there, or stop its pods first: reset --root-dir %s",
				rootDir, baseOf(at), base, rootDir)
		}
	} else {
		if err := errors.Join(h.pasta(ctx).kill(ctx), clearBase(ctx, base)); err != nil {
			return fmt.Errorf("remove what is left of earlier namespaces: %w", err)
		}
		if err := h.start(ctx, &r); err != nil {
			return err
		}
	}
	if err := settle(base); err != nil {
		return err
	}
	pasta := h.pasta(ctx)
	if r.Ports != c.Ports && !busy(rootDir) {
		r.Ports = c.Ports
		if err := errors.Join(pasta.kill(ctx), h.write(r)); err != nil {
			return err
		}
	}
	if !pasta.lives(ctx) {
		if err := h.connect(ctx, r.Holder, c.Ports); err != nil {
			return err
		}
	}
	return r.enter()
}

// busy reports whether an agent runs with the root directory. Another one will fail, and must not change
// its network.
func busy(rootDir string) bool {
	f, err := safefile.OpenIn(rootDir, lockName)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return ownerlock.Check(f) != nil
}

// Check returns an error with everything that the machine lacks for [Enter], with a remedy for each. It
// returns nil for root.
func Check(ctx context.Context) error {
	uid := os.Geteuid()
	if uid == 0 {
		return nil
	}
	_, err := delegated(ctx)
	return lacks(uid, err)
}

// Visit does the same as Enter for commands that need only the files of an agent. It does not need a
// delegated cgroup, and does not start the network. If the root directory does not exist, it returns nil at once.
func Visit(ctx context.Context, rootDir string) error {
	uid := os.Geteuid()
	if uid == 0 {
		return nil
	}
	if _, err := os.Lstat(rootDir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := lacks(uid, nil); err != nil {
		return err
	}
	h, unlock, err := openHome(rootDir)
	if err != nil {
		return err
	}
	defer unlock()
	r := h.read()
	if !r.Holder.lives(ctx) {
		if err := h.start(ctx, &r); err != nil {
			return err
		}
	}
	return r.enter()
}

// enter replaces this process by the same program in the namespaces.
func (r record) enter() error {
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	args := append([]string{"nsenter", "--target", strconv.Itoa(r.Holder.PID), "--user", "--mount", "--net", "--cgroup", "--wdns=" + wd, "--", program}, os.Args[1:]...)
	return fmt.Errorf("enter namespaces: %w", syscall.Exec(nsenter, args, os.Environ()))
}

// Remove calls stop, which stops the pods and may remove the root directory's content. If stop succeeds,
// Remove removes the cgroups of pods, and ends the holder of the root directory and its network. It has to
// run in the namespaces; elsewhere it only calls stop.
func Remove(ctx context.Context, rootDir string, stop func() error) error {
	if !Inside() {
		return stop()
	}
	h, unlock, err := openHome(rootDir)
	if err != nil {
		return err
	}
	defer unlock()
	r, pasta := h.read(), h.pasta(ctx) // before stop removes the record
	if err := errors.Join(stop(), removePods(ctx, cgroupMount)); err != nil {
		return err
	}
	return errors.Join(pasta.kill(ctx), r.Holder.kill(ctx), os.RemoveAll(h.Path))
}
