package network

import (
	"path/filepath"
	"slices"
	"strings"
)

// found is the input of a recovery.
type found struct {
	records []kept
	spaces  map[string]Space // namespaces by path: the ones of the records, and all with this network's names
	boot    string           // ID of the current boot
	plugins map[string]bool  // names of the configured plugins
	dir     string           // directory of the namespaces
	prefix  string
}

// step is an action of a recovery.
type step uint8

const (
	keep     step = iota // it is in use
	lose                 // the namespace is gone; the owner has to detach it
	takeBack             // call TearDown until it succeeds
	strand               // it cannot be torn down, since its plugin is not configured
	unmount              // remove a namespace that has no record
)

// action is one action of a recovery.
type action struct {
	step  step
	of    kept   // unless step is unmount
	space Space  // SpaceNamed for keep, and for takeBack if TearDown gets the namespace
	path  string // path of the namespace
}

// plan returns the actions for the state that a network finds at its start: first one action for
// each record, in order, and then those for namespaces without a record.
func plan(f found) []action {
	var out []action
	named := map[string]bool{}
	for _, k := range f.records {
		path := k.record.Netns
		named[path] = true
		a := action{of: k, path: path, space: f.spaces[path]}
		mine := a.space.Kind == SpaceNamed && k.record.Boot == f.boot
		if mine && k.progress != nil && k.progress.Space != 0 {
			mine = k.progress.Space == a.space.ID
		}
		if !mine {
			a.space = Space{}
		}
		attached := k.progress != nil && !k.progress.Detaching && k.record.Boot == f.boot
		switch {
		case attached && mine:
			a.step = keep
		case attached:
			a.step = lose
		case !f.plugins[k.record.Plugin]:
			a.step = strand
		default:
			a.step = takeBack
		}
		out = append(out, a)
	}
	var stray []string
	for path, space := range f.spaces {
		dir, name := filepath.Split(path)
		if named[path] || strings.TrimSuffix(dir, "/") != strings.TrimSuffix(f.dir, "/") || !isSpaceName(f.prefix, name) {
			continue
		}
		if space.Kind == SpaceNamed || space.Kind == SpaceEmpty {
			stray = append(stray, path)
		}
	}
	slices.Sort(stray)
	for _, path := range stray {
		out = append(out, action{step: unmount, path: path, space: f.spaces[path]})
	}
	return out
}
