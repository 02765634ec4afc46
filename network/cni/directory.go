package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"go.uber.org/zap"

	"github.com/containernetworking/cni/libcni"

	"github.com/nodewright/nodewright/internal/safefile"
)

// Limits of the directory.
const (
	maxEntries = 4096 // limit of entries read
	maxFiles   = 64   // limit of configuration files
	maxNamed   = 8    // limit of faulty files in an error
)

// directory reads the configurations. Loads must not be concurrent.
type directory struct {
	path     string
	versions *versions
	log      *zap.Logger

	last  *list
	named map[string]string // errors by file, as they were logged
	// subs and the fields below are results of the last load: the directories of plugins' files
	// of the checked lists, and whether a plugin did not return its versions.
	subs       []string
	unanswered bool
}

// load reads the directory and returns the list to use. The error says why there is none. If
// the directory exists but cannot be read, it returns the list that was in use before.
func (d *directory) load(ctx context.Context) (*list, error) {
	d.subs, d.unanswered = nil, false
	files, err := confFiles(d.path, confExtensions...)
	if err != nil {
		d.name([]skipped{{".", err}})
		if d.last != nil {
			return d.last, nil
		}
		return nil, noList(d.path, []skipped{{".", err}})
	}
	l, passed := choose(files, d.read, func(l *list) (string, error) { return d.versions.check(ctx, l) }, d.last)
	d.versions.sweep()
	d.unanswered = slices.ContainsFunc(passed, func(s skipped) bool { return errors.Is(s.err, errUnanswered) })
	d.name(passed)
	d.last = l
	if l == nil {
		return nil, noList(d.path, passed)
	}
	return l, nil
}

// Find returns the path of the first configuration that can be parsed and whose plugins are
// installed. It starts no plugin, and does not compare versions. The error says why there is no such configuration.
func Find(cfg Config) (string, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return "", err
	}
	files, err := confFiles(cfg.ConfDir, confExtensions...)
	if err != nil {
		return "", noList(cfg.ConfDir, []skipped{{".", err}})
	}
	d := directory{path: cfg.ConfDir}
	l, passed := choose(files, d.read, func(l *list) (string, error) {
		for _, kind := range l.kinds() {
			if _, _, err := findPlugin(kind, cfg.BinDirs); err != nil {
				return "", err
			}
		}
		return "", nil
	}, nil)
	if l == nil {
		return "", noList(cfg.ConfDir, passed)
	}
	return filepath.Join(cfg.ConfDir, l.file), nil
}

// confExtensions are the extensions of configurations (those of libcni).
var confExtensions = []string{".conf", ".conflist", ".json"}

// confFiles returns the files of a directory with some extensions, sorted. A missing
// directory has none. Symbolic links are followed.
func confFiles(dir string, extensions ...string) ([]string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := safefile.Entries(real, maxEntries)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains(extensions, filepath.Ext(e.Name())) {
			files = append(files, e.Name())
		}
	}
	if len(files) > maxFiles {
		return nil, fmt.Errorf("%s has %d configurations; want at most %d", dir, len(files), maxFiles)
	}
	slices.Sort(files)
	return files, nil
}

// read reads a configuration file, and the separate files of its network's plugins.
func (d *directory) read(file string) (*list, error) {
	data, err := safefile.ReadLinked(filepath.Join(d.path, file), maxConf)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	l, err := parseConf(file, data)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(file, ".conflist") && !l.inlined {
		if l, err = d.readPlugins(l); err != nil {
			return nil, err
		}
	}
	if len(l.plugins) == 0 {
		return nil, errors.New("configuration has no plugins; want at least one")
	}
	return l, nil
}

// readPlugins adds the plugins of a list that have separate files, in a directory with the
// network's name.
func (d *directory) readPlugins(l *list) (*list, error) {
	dir := filepath.Join(d.path, l.name)
	d.subs = append(d.subs, dir)
	files, err := confFiles(dir, ".conf")
	if errors.Is(err, syscall.ENOTDIR) {
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: plugins of network %s: %w", errUnreadable, l.name, err)
	}
	var plugins []json.RawMessage
	size := len(l.bytes)
	for _, file := range files {
		data, err := safefile.ReadLinked(filepath.Join(dir, file), maxConf)
		if err == nil {
			_, err = libcni.NetworkPluginConfFromBytes(data)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: plugin %s/%s: %w", errUnreadable, l.name, file, err)
		}
		if size += len(data); size > maxConf {
			return nil, fmt.Errorf("configuration has more than %d bytes with the files of its plugins", maxConf)
		}
		plugins = append(plugins, data)
	}
	return l.with(plugins)
}

// name logs, once for each error, the files that are not valid.
func (d *directory) name(passed []skipped) {
	now := map[string]string{}
	for _, s := range passed {
		text := clip(s.err.Error(), maxText)
		now[s.file] = text
		if d.named[s.file] != text {
			d.log.Warn("skipped network configuration", zap.String("directory", d.path), zap.String("file", s.file), zap.String("error", text))
		}
	}
	d.named = now
}

// noList returns the error of Status if there is no valid list.
func noList(dir string, passed []skipped) error {
	var b strings.Builder
	fmt.Fprintf(&b, "no valid network configuration in %s", dir)
	for i, s := range passed {
		if i == maxNamed {
			fmt.Fprintf(&b, "; and %d more", len(passed)-i)
			break
		}
		b.WriteString([]string{": ", "; "}[min(i, 1)])
		if s.file != "." {
			fmt.Fprintf(&b, "%s: ", clip(s.file, 64))
		}
		b.WriteString(clip(s.err.Error(), 512))
	}
	return errors.New(b.String())
}
