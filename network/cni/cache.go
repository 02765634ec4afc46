package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/safefile"
)

// Limits of the cache.
const (
	maxCached       = 4 << 20 // bytes of a file: a list, arguments and a result
	maxCacheEntries = 1 << 16
)

// entry is a file of libcni's cache, as libcni writes it.
type entry struct {
	Kind         string                     `json:"kind"`
	ContainerID  string                     `json:"containerId"`
	Config       []byte                     `json:"config"`
	IfName       string                     `json:"ifName"`
	NetworkName  string                     `json:"networkName"`
	NetNS        string                     `json:"netns,omitempty"`
	Args         [][2]string                `json:"cniArgs,omitempty"`
	Capabilities map[string]json.RawMessage `json:"capabilityArgs,omitempty"`
	Result       json.RawMessage            `json:"result,omitempty"`
}

func (p *Plugin) cache() string { return filepath.Join(p.cfg.CacheDir, "results") }

// makeCache creates the directory for libcni's cache, to which libcni writes
// without checks: only root may write to it.
func (p *Plugin) makeCache() error {
	if err := os.MkdirAll(p.cache(), 0o700); err != nil {
		return err
	}
	for _, dir := range []string{p.cfg.CacheDir, p.cache()} {
		if err := os.Chmod(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

func entryName(network, id, ifName string) string {
	return fmt.Sprintf("%s-%s-%s", network, id, ifName)
}

// mend makes sure that libcni's cache has an intact entry for an attachment. If the
// existing entry is damaged, it writes the result that this plugin has in memory.
// Without either result it removes the entry, and returns false.
func (p *Plugin) mend(s *saved, rt *libcni.RuntimeConf) (bool, error) {
	name := entryName(s.list.name, rt.ContainerID, rt.IfName)
	e, err := p.readEntry(name)
	if err == nil && e.ContainerID == rt.ContainerID && e.NetworkName == s.list.name && e.IfName == rt.IfName {
		return true, nil
	}
	p.mu.Lock()
	result := p.results[rt.ContainerID]
	p.mu.Unlock()
	if checkResult(result) != nil {
		// The file is removed: libcni would wait for a pipe, and a wrong entry is worse than a
		// missing one.
		if err := os.RemoveAll(filepath.Join(p.cache(), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("remove damaged file of the cache: %w", err)
		}
		return false, nil
	}
	b, err := json.Marshal(entry{
		Kind: libcni.CNICacheV1, ContainerID: rt.ContainerID, Config: s.List, IfName: rt.IfName, NetworkName: s.list.name,
		NetNS: rt.NetNS, Args: s.Args, Capabilities: s.Capabilities, Result: result,
	})
	if err != nil {
		return false, err
	}
	path := filepath.Join(p.cache(), name)
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		if err := os.RemoveAll(path); err != nil {
			return false, fmt.Errorf("remove damaged file of the cache: %w", err)
		}
	}
	if err := p.makeCache(); err != nil {
		return false, err
	}
	d := durable.Dir{Path: p.cache(), Disk: durable.OS{DirMode: 0o700, FileMode: 0o600}}
	if err := d.Replace(name, b); err != nil {
		return false, fmt.Errorf("write file of the cache: %w", err)
	}
	return true, nil
}

// tidy removes the files that a crash within mend left.
func (p *Plugin) tidy(s *saved, rt *libcni.RuntimeConf) {
	_ = os.Remove(filepath.Join(p.cache(), entryName(s.list.name, rt.ContainerID, rt.IfName)+durable.TempSuffix))
}

// readEntry reads a file of the cache. It returns an error if the file is incomplete.
func (p *Plugin) readEntry(name string) (*entry, error) {
	b, err := safefile.ReadIn(p.cache(), name, maxCached)
	if err != nil {
		return nil, err
	}
	return parseEntry(b)
}

func parseEntry(b []byte) (*entry, error) {
	var e entry
	if err := json.Unmarshal(b, &e); err != nil {
		return nil, err
	}
	if e.Kind != libcni.CNICacheV1 {
		return nil, fmt.Errorf("kind is %q; want %q", clip(e.Kind, 64), libcni.CNICacheV1)
	}
	return &e, checkResult(e.Result)
}

// checkResult returns an error for an invalid result or an unknown version.
func checkResult(raw json.RawMessage) (err error) {
	defer recovered(&err)
	if err := holesIn(raw); err != nil {
		return err
	}
	var said struct {
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal(raw, &said); err != nil || said.CNIVersion == "" {
		return errors.Join(errors.New("result has no version"), err)
	}
	r, err := create.CreateFromBytes(raw)
	if err != nil {
		return err
	}
	_, err = r.GetAsVersion(r.Version())
	return err
}

// entries returns the intact entries of the cache, sorted.
func (p *Plugin) entries() ([]*entry, error) {
	names, err := safefile.Names(p.cache(), maxCacheEntries)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all []*entry
	for _, name := range names {
		e, err := p.readEntry(name)
		if err != nil || name != entryName(e.NetworkName, e.ContainerID, e.IfName) {
			continue // left by a crash; mend repairs it from the record
		}
		all = append(all, e)
	}
	return all, nil
}

// record converts an entry of the cache to a record.
func (e *entry) record() (*saved, error) {
	s := &saved{
		Format: savedFormat, File: "cache.conflist", List: e.Config, IfName: e.IfName, Args: e.Args, Capabilities: e.Capabilities,
	}
	var r struct {
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal(e.Result, &r); err != nil {
		return nil, err
	}
	l, err := parseList(s.File, s.List)
	if err != nil {
		return nil, err
	}
	if s.Version = r.CNIVersion; !slices.Contains(l.offers, s.Version) {
		s.Version = l.offers[0]
	}
	b, err := s.encode()
	if err != nil {
		return nil, err
	}
	return decodeSaved(b)
}

// cached returns records for an ID, which it builds from the entries of libcni's cache.
func (p *Plugin) cached(id string) []*saved {
	all, err := p.entries()
	if err != nil {
		return nil
	}
	var records []*saved
	for _, e := range all {
		if e.ContainerID != id {
			continue
		}
		if s, err := e.record(); err == nil {
			records = append(records, s)
		}
	}
	return records
}
