package networktest

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/nodewright/nodewright/network"
)

// Namespaces are network namespaces in memory. The zero value has none. It may be
// used from any goroutine, and by several networks one after the other, like after
// a restart of the agent.
type Namespaces struct {
	mu   sync.Mutex
	hook func(call, path string) error
	last uint64
	at   map[string]network.Space
}

// SetHook sets a function that is called before each call, with the call's name, such as "Make".
// If the function returns an error, the call returns it. The function may block.
func (n *Namespaces) SetHook(f func(call, path string) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hook = f
}

func (n *Namespaces) before(call, path string) error {
	n.mu.Lock()
	hook := n.hook
	n.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(call, path)
}

// Make creates a namespace.
func (n *Namespaces) Make(_ context.Context, path string, _ *os.File) (uint64, error) {
	if err := n.before("Make", path); err != nil {
		return 0, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.at[path]; ok {
		return 0, &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	n.last++
	n.put(path, network.Space{Kind: network.SpaceNamed, ID: n.last})
	return n.last, nil
}

func (n *Namespaces) put(path string, s network.Space) {
	if n.at == nil {
		n.at = map[string]network.Space{}
	}
	n.at[path] = s
}

// Put puts anything at a path, like another program would; SpaceNone removes it.
func (n *Namespaces) Put(path string, s network.Space) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.Kind == network.SpaceNone {
		delete(n.at, path)
		return
	}
	n.put(path, s)
}

// Reboot removes all namespaces, as a reboot of the machine does.
func (n *Namespaces) Reboot() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.at)
}

// Look returns the kind of file at a path.
func (n *Namespaces) Look(path string) (network.Space, error) {
	if err := n.before("Look", path); err != nil {
		return network.Space{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at[path], nil
}

// Remove removes a namespace.
func (n *Namespaces) Remove(path string, id uint64) error {
	if err := n.before("Remove", path); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch at := n.at[path]; {
	case at.Kind == network.SpaceNone:
		return nil
	case at.Kind == network.SpaceEmpty, at.Kind == network.SpaceNamed && (id == 0 || id == at.ID):
		delete(n.at, path)
		return nil
	default:
		return &fs.PathError{Op: "remove", Path: path, Err: network.ErrForeign}
	}
}

// List returns the entries of a directory.
func (n *Namespaces) List(dir string, limit int) ([]string, error) {
	if err := n.before("List", dir); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var names []string
	for path := range n.at {
		if filepath.Dir(path) == dir && len(names) < limit {
			names = append(names, filepath.Base(path))
		}
	}
	slices.Sort(names)
	return names, nil
}

// Paths returns all paths, sorted.
func (n *Namespaces) Paths() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for path := range n.at {
		out = append(out, path)
	}
	slices.Sort(out)
	return out
}
