package node

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/nodewright/nodewright/internal/ownerlock"
	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/safefile"
)

// ClaimsDir is the directory in which the agents of a machine record the resources
// that they use.
const ClaimsDir = "/run/nodewright-claims"

// ErrClaimed means that another agent of the machine uses a resource.
var ErrClaimed = errors.New("in use by another agent")

// Claim is a resource of the machine that only one agent may use.
type Claim struct {
	Kind string `json:"kind"` // such as "cgroup"
	Name string `json:"name"` // such as "/kubepods"
	// Set names the settings that select another resource, for the error.
	Set string `json:"-"`
}

func (c Claim) String() string { return fmt.Sprintf("%s %q", c.Kind, c.Name) }

// ClaimedError names the agent that has a claim. It is an [ErrClaimed].
type ClaimedError struct {
	Claim
	RootDir string // of the owner
	PID     string // of the owner's process; "" if it does not run
	File    string // the owner's record
}

func (e *ClaimedError) Error() string {
	text := fmt.Sprintf("%s is used by the agent with root directory %q", e.Claim, e.RootDir)
	if e.PID != "" {
		return fmt.Sprintf("%s, process %s: set %s to another one", text, e.PID, e.Set)
	}
	return fmt.Sprintf("%s; that agent is not running, but its containers may be: set %s to another one, or remove %s if that agent is gone for good", text, e.Set, e.File)
}

// Is reports whether target is ErrClaimed.
func (*ClaimedError) Is(target error) bool { return target == ErrClaimed }

// Limits of the number of agents and of the size of a record.
const (
	maxAgents    = 1000
	maxClaims    = 64 << 10 // bytes
	claimTimeout = 10 * time.Second
	rootTimeout  = 2 * time.Second // for the file system of another agent's root directory
)

// claimRecord is the content of an agent's file.
type claimRecord struct {
	RootDir string  `json:"rootDir"`
	Claims  []Claim `json:"claims"`
}

// TakeClaims records in dir ([ClaimsDir] if empty) that the agent with a root
// directory uses exactly these claims. If other agents use some of them nothing is
// recorded, and the error has a [*ClaimedError] for each.
//
// Claims belong to a root directory and not to a process: the containers of an
// agent run while it is restarted or upgraded. They end with the boot, with the
// root directory, or by [DropClaims]. dir is created with mode 0700. TakeClaims
// waits for concurrent calls of other agents, until ctx ends or for ten seconds.
func TakeClaims(ctx context.Context, dir, rootDir string, claims ...Claim) error {
	rootDir = filepath.Clean(rootDir)
	c, err := openClaims(ctx, dir, rootDir)
	if err != nil {
		return fmt.Errorf("open the claims of this machine's agents: %w", err)
	}
	defer c.close()
	others, err := c.others(ctx)
	if err != nil {
		return fmt.Errorf("read the claims of other agents: %w", err)
	}
	var errs []error
	for _, one := range claims {
		for _, o := range others {
			if slices.ContainsFunc(o.Claims, func(theirs Claim) bool { return theirs.Kind == one.Kind && theirs.Name == one.Name }) {
				errs = append(errs, &ClaimedError{Claim: one, RootDir: o.RootDir, PID: o.pid, File: o.file})
			}
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	b, err := json.Marshal(claimRecord{rootDir, claims})
	if err == nil {
		err = c.dir.Replace(claimFile(rootDir), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write this agent's claims: %w", err)
	}
	return nil
}

// DropClaims removes the record of the agent with a root directory from dir ([ClaimsDir] if
// empty). The agent must not use the resources any more. If there is no record, DropClaims
// returns nil.
func DropClaims(ctx context.Context, dir, rootDir string) error {
	rootDir = filepath.Clean(rootDir)
	if _, err := os.Lstat(cmp.Or(dir, ClaimsDir)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c, err := openClaims(ctx, dir, rootDir)
	if err != nil {
		return fmt.Errorf("open the claims of this machine's agents: %w", err)
	}
	defer c.close()
	if err := c.dir.Remove(claimFile(rootDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove this agent's claims: %w", err)
	}
	return nil
}

// claimFile returns the name of an agent's record.
func claimFile(rootDir string) string {
	sum := sha256.Sum256([]byte(rootDir))
	return hex.EncodeToString(sum[:8]) + ".json"
}

// claimsDir is the directory of the records. It is locked while it is in use.
type claimsDir struct {
	path, rootDir string
	dir           *safefile.Dir
	lock          *os.File
}

// openClaims creates the directory if it is missing, and locks it. Only its owner
// may enter it.
func openClaims(ctx context.Context, dir, rootDir string) (*claimsDir, error) {
	dir = cmp.Or(dir, ClaimsDir)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() || !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %v; want a directory of the agent's user alone", dir, info.Mode())
	}
	held, err := safefile.OpenDir(dir, ".")
	if err != nil {
		return nil, err
	}
	c := &claimsDir{path: dir, rootDir: rootDir, dir: held}
	if c.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600); err == nil { //nolint:forbidigo // in a directory of this user alone
		err = lockWithin(ctx, c.lock)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func lockWithin(ctx context.Context, f *os.File) error {
	ctx, cancel := context.WithTimeoutCause(ctx, claimTimeout, fmt.Errorf("%s: another process has had the lock for %v", f.Name(), claimTimeout))
	defer cancel()
	wait := retry.Backoff{First: time.Millisecond, Max: 100 * time.Millisecond}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		if !wait.Wait(ctx) {
			return context.Cause(ctx)
		}
	}
}

func (c *claimsDir) close() {
	if c.lock != nil {
		_ = ownerlock.Release(c.lock)
	}
	_ = c.dir.Close()
}

// otherAgent is another agent of this machine that has claims. It has the agent's process ID if
// the agent runs.
type otherAgent struct {
	claimRecord
	file, pid string
}

// others reads the records of other agents. It removes the record of an agent whose root directory
// is gone: such an agent has no running containers.
func (c *claimsDir) others(ctx context.Context) ([]otherAgent, error) {
	entries, err := c.dir.Entries(maxAgents)
	if err != nil {
		return nil, err
	}
	var out []otherAgent
	for _, e := range entries {
		name := e.Name()
		if filepath.Ext(name) != ".json" || name == claimFile(c.rootDir) {
			continue
		}
		o := otherAgent{file: filepath.Join(c.path, name)}
		b, err := safefile.ReadFile(o.file, maxClaims)
		if err != nil {
			return nil, err
		}
		there := false
		if json.Unmarshal(b, &o.claimRecord) == nil {
			there, o.pid = c.isThere(ctx, o.RootDir)
		}
		if there {
			out = append(out, o)
		} else if err := c.dir.Remove(name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// isThere reports whether another agent with that root directory exists. pid is its process if
// the agent runs. If the file system does not answer, isThere returns true.
func (c *claimsDir) isThere(ctx context.Context, rootDir string) (exists bool, pid string) {
	type answer struct {
		there bool
		pid   string
	}
	found := make(chan answer, 1)
	go func() { // on a goroutine: it may hang
		info, err := os.Stat(rootDir)
		own, ownErr := os.Stat(c.rootDir)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && ownErr == nil && os.SameFile(info, own):
			found <- answer{}
		default:
			found <- answer{true, lockHolder(rootDir)}
		}
	}()
	late := time.NewTimer(rootTimeout)
	defer late.Stop()
	select {
	case a := <-found:
		return a.there, a.pid
	case <-late.C:
	case <-ctx.Done():
	}
	return true, ""
}

// lockHolder returns the process that has the lock of a root directory, or "" if there is none.
func lockHolder(rootDir string) string {
	f, err := safefile.Open(filepath.Join(rootDir, RootLockName))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	var held *ownerlock.HeldError
	if errors.As(ownerlock.Check(f), &held) {
		return held.PID
	}
	return ""
}
