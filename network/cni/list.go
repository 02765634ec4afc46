package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// Limits of configurations.
const (
	// maxConf limits the bytes of a list, with the files of its plugins. Encoded in a record, it
	// leaves a third of the record for arguments.
	maxConf = 128 << 10
	// maxPlugins limits the plugins of a list: each one is a process.
	maxPlugins = 32
	// maxName and maxID limit the bytes of a network's name and of an attachment's ID. The file
	// name NAME-ID-IFNAME in libcni's cache has at most 255 bytes, 15 of them for the interface.
	maxName = 110
	maxID   = 128
)

// legalName is the form of names in the CNI specification, section 1.
var legalName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// errUnreadable is the error of a file that cannot be read, is empty, or is not JSON.
// Another program may be writing it at the moment.
var errUnreadable = errors.New("file cannot be read, is empty or is not JSON")

// list is a network: its plugins in order. It is immutable.
type list struct {
	file    string // name in the directory
	bytes   []byte // a conflist with all of its plugins
	name    string
	offers  []string // the supported versions of the list
	version string   // the version in use; "" until it is chosen
	plugins []plugin
	inlined bool // loadOnlyInlinedPlugins

	parsed *libcni.NetworkConfigList
}

// plugin is one entry of a network configuration list.
type plugin struct {
	kind         string
	capabilities []string                   // capabilities that the plugin declares
	fields       map[string]json.RawMessage // all fields, as the file has them
}

// parseConf parses a file of the directory. Only a .conflist is a list; any other
// file is a single plugin, which becomes a list.
func parseConf(file string, data []byte) (*list, error) {
	switch {
	case len(data) > maxConf:
		return nil, fmt.Errorf("configuration has %d bytes; want at most %d", len(data), maxConf)
	case len(bytes.TrimSpace(data)) == 0:
		return nil, fmt.Errorf("%w: the file is empty", errUnreadable)
	case !json.Valid(data):
		var v json.RawMessage
		return nil, fmt.Errorf("%w: %w", errUnreadable, json.Unmarshal(data, &v))
	}
	if strings.HasSuffix(file, ".conflist") {
		return parseList(file, data)
	}
	var single map[string]json.RawMessage
	if err := json.Unmarshal(data, &single); err != nil {
		return nil, err
	}
	if _, ok := single["type"]; !ok {
		if _, ok := single["plugins"]; ok {
			return nil, errors.New(`file has plugins and no type; want a list to be named .conflist`)
		}
		return nil, errors.New("configuration has no type; want the name of a plugin")
	}
	outer := map[string]json.RawMessage{"plugins": slices.Concat([]byte("["), data, []byte("]"))}
	for _, key := range []string{"name", "cniVersion"} {
		if v, ok := single[key]; ok {
			outer[key] = v
		}
	}
	return parseList(file, object(outer))
}

// parseList parses a conflist. It must have at least one plugin, unless plugins are
// in files of their own that are read later.
func parseList(file string, data []byte) (l *list, err error) {
	defer recovered(&err)
	if len(data) > maxConf {
		return nil, fmt.Errorf("configuration has %d bytes; want at most %d", len(data), maxConf)
	}
	parsed, err := libcni.NetworkConfFromBytes(data)
	if err != nil {
		return nil, err
	}
	var outer map[string]json.RawMessage // exact keys, as libcni has them
	if err := json.Unmarshal(data, &outer); err != nil {
		return nil, err
	}
	var fields struct {
		version  string
		versions []string
		plugins  []json.RawMessage
	}
	for key, to := range map[string]any{"cniVersion": &fields.version, "cniVersions": &fields.versions, "plugins": &fields.plugins} {
		if raw, ok := outer[key]; ok {
			if err := json.Unmarshal(raw, to); err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	l = &list{file: file, bytes: data, name: parsed.Name, inlined: parsed.LoadOnlyInlinedPlugins, parsed: parsed}
	if !legalName.MatchString(l.name) || len(l.name) > maxName {
		return nil, fmt.Errorf("name is %q; want at most %d bytes of %s", clip(l.name, 2*maxName), maxName, legalName)
	}
	if l.offers, err = offered(fields.version, fields.versions); err != nil {
		return nil, err
	}
	if len(fields.plugins) > maxPlugins {
		return nil, fmt.Errorf("list has %d plugins; want at most %d", len(fields.plugins), maxPlugins)
	}
	for i, raw := range fields.plugins {
		p, err := parsePlugin(raw)
		if err != nil {
			return nil, fmt.Errorf("plugins[%d]: %w", i, err)
		}
		l.plugins = append(l.plugins, p)
	}
	return l, nil
}

func parsePlugin(raw json.RawMessage) (plugin, error) {
	conf, err := libcni.NetworkPluginConfFromBytes(raw)
	if err != nil {
		return plugin{}, err
	}
	p := plugin{kind: conf.Network.Type}
	if err := checkKind(p.kind); err != nil {
		return plugin{}, err
	}
	for c, declared := range conf.Network.Capabilities {
		if declared {
			p.capabilities = append(p.capabilities, c)
		}
	}
	slices.Sort(p.capabilities)
	return p, json.Unmarshal(raw, &p.fields)
}

// checkKind refuses types that are not names of files.
func checkKind(kind string) error {
	if kind == "" || kind == "." || kind == ".." || len(kind) > 255 || strings.ContainsAny(kind, "/\x00") {
		return fmt.Errorf("type is %q; want the name of an executable, without directories", clip(kind, 255))
	}
	return nil
}

// offered returns those versions of a list that this package supports, the highest first.
// cniVersion and cniVersions are the fields of these names. If both are empty, it returns 0.1.0,
// as the specification demands.
func offered(cniVersion string, cniVersions []string) ([]string, error) {
	all := slices.Clone(cniVersions)
	if cniVersion != "" || len(cniVersions) == 0 {
		all = append(all, cniVersion)
	}
	var known []string
	for _, v := range slices.Backward(version.All.SupportedVersions()) {
		if slices.Contains(all, v) || v == "0.1.0" && slices.Contains(all, "") {
			known = append(known, v)
		}
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("cniVersion is %q; want one of %q", clip(strings.Join(all, " "), 255), version.All.SupportedVersions())
	}
	return known, nil
}

// with returns a copy of the list with additional plugins, which have separate files.
func (l *list) with(more []json.RawMessage) (*list, error) {
	if len(more) == 0 {
		return l, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(l.bytes, &fields); err != nil {
		return nil, err
	}
	var plugins []json.RawMessage
	if raw, ok := fields["plugins"]; ok {
		if err := json.Unmarshal(raw, &plugins); err != nil {
			return nil, err
		}
	}
	plugins = append(plugins, more...)
	joined := []byte{'['}
	for i, p := range plugins {
		if i > 0 {
			joined = append(joined, ',')
		}
		joined = append(joined, p...)
	}
	fields["plugins"] = append(joined, ']')
	return parseList(l.file, object(fields))
}

// speaking returns a copy of the list that uses a version.
func (l *list) speaking(version string) *list {
	c := *l
	c.version = version
	return &c
}

// same reports whether two lists are equal except for the version in use.
func (l *list) same(o *list) bool {
	return o != nil && l.file == o.file && bytes.Equal(l.bytes, o.bytes)
}

// declares reports whether a plugin of the list has a capability.
func (l *list) declares(capability string) bool {
	return slices.ContainsFunc(l.plugins, func(p plugin) bool { return slices.Contains(p.capabilities, capability) })
}

func (l *list) kinds() []string {
	kinds := make([]string, 0, len(l.plugins))
	for _, p := range l.plugins {
		kinds = append(kinds, p.kind)
	}
	return kinds
}

// stand takes the place of a plugin's configuration within libcni, which would decode and encode
// the configuration, and change numbers of more than 53 bits. The executor inserts the plugin's
// own fields again.
type stand struct {
	Type         string          `json:"type"`
	Index        int             `json:"nodewright.io/index"`
	Capabilities map[string]bool `json:"capabilities,omitempty"`
}

const indexKey = "nodewright.io/index"

func declared(capabilities []string) map[string]bool {
	m := map[string]bool{}
	for _, c := range capabilities {
		m[c] = true
	}
	return m
}

// forLibcni returns the list for libcni: with the version in use, and only the fields that libcni
// reads.
func (l *list) forLibcni() *libcni.NetworkConfigList {
	c := *l.parsed
	c.CNIVersion = l.version
	c.Plugins = make([]*libcni.PluginConfig, 0, len(l.plugins))
	for i, p := range l.plugins {
		b, _ := json.Marshal(stand{p.kind, i, declared(p.capabilities)}) // of strings and numbers, without error
		c.Plugins = append(c.Plugins, &libcni.PluginConfig{Network: &types.PluginConf{Type: p.kind}, Bytes: b})
	}
	return &c
}

// request returns the input of a plugin: its own fields as in the file, with
// libcni's fields added.
func (l *list) request(made []byte) ([]byte, error) {
	var over map[string]json.RawMessage
	if err := json.Unmarshal(made, &over); err != nil {
		return nil, err
	}
	raw, ok := over[indexKey]
	if !ok {
		return made, nil
	}
	i, err := strconv.Atoi(string(raw))
	if err != nil || i < 0 || i >= len(l.plugins) {
		return nil, fmt.Errorf("index %s of a plugin; want less than %d", raw, len(l.plugins))
	}
	for _, key := range []string{indexKey, "type", "capabilities"} {
		delete(over, key)
	}
	fields := map[string]json.RawMessage{}
	for _, m := range []map[string]json.RawMessage{l.plugins[i].fields, over} {
		for k, v := range m {
			fields[k] = v
		}
	}
	return object(fields), nil
}

// object encodes an object with its values unchanged, sorted by key.
func object(fields map[string]json.RawMessage) []byte {
	keys := make([]string, 0, len(fields))
	for k := range fields {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	b := []byte{'{'}
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		name, _ := json.Marshal(k) // of a string, without error
		b = append(append(append(b, name...), ':'), fields[k]...)
	}
	return append(b, '}')
}

// clip cuts an untrusted text, and removes line breaks.
func clip(s string, limit int) string {
	cut := len(s) > limit
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), limit)], "?"))
	if cut {
		s += "..."
	}
	return s
}

// recovered turns a panic into an error: libcni parses untrusted input.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panicked: %v", p)
	}
}
