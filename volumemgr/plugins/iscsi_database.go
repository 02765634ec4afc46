package plugins

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/safefile"
)

// database is the database of iscsiadm: files with lines "name = value".
type database struct{ root string }

// places are the directories that distributions use for the database.
var places = []string{"etc/iscsi", "var/lib/iscsi"}

// Limits of the database's files.
const (
	maxFile   = 256 << 10 // bytes
	maxFiles  = 4096      // in a directory
	maxSecret = 255       // bytes of a value; AUTH_STR_MAX_LEN of open-iscsi is 256 with the final NUL
)

// setting is one line of a file.
type setting struct{ name, value string }

// chapKeys are the keys of a CHAP Secret, as in the kubelet. With a prefix they are the names of
// settings.
var chapKeys = []string{"auth.username", "auth.password", "auth.username_in", "auth.password_in"}

// chapOf returns the CHAP settings from a Secret; prefix is "node.session." or
// "discovery.sendtargets.".
func chapOf(prefix string, secret map[string][]byte) []setting {
	out := []setting{{prefix + "auth.authmethod", "CHAP"}}
	for _, k := range chapKeys {
		key := prefix + k
		if prefix == "node.session." {
			key = "node.session." + k
		}
		if v := secret[key]; len(v) > 0 {
			out = append(out, setting{prefix + k, string(v)})
		}
	}
	return out
}

// where returns the paths of files below one of the places.
type where func(place string) ([]string, error)

// discoveryFile finds the record of a discovery at a portal.
func discoveryFile(portal string) where {
	return func(place string) ([]string, error) {
		dir := filepath.Join(place, "send_targets", comma(portal))
		if _, err := os.Lstat(dir); err != nil {
			return nil, err
		}
		return []string{filepath.Join(dir, "st_config")}, nil
	}
}

// comma returns a portal as the database writes it in names: "address,port".
func comma(portal string) string {
	host, port, err := net.SplitHostPort(portal)
	if err != nil {
		return portal
	}
	return host + "," + port
}

// nodeFiles finds the records of a target at a portal, nodes/TARGET/ADDRESS,PORT[,TAG]. Each is a
// file, or a directory with a file for each interface.
func nodeFiles(iqn, portal, iface string) where {
	return func(place string) ([]string, error) {
		dir := filepath.Join(place, "nodes", iqn)
		names, err := safefile.Names(dir, maxFiles)
		if err != nil {
			return nil, err
		}
		slices.Sort(names)
		var out []string
		for _, n := range names {
			if n != comma(portal) && !strings.HasPrefix(n, comma(portal)+",") {
				continue
			}
			path := filepath.Join(dir, n)
			info, err := os.Lstat(path)
			if err != nil {
				return nil, err
			}
			if info.IsDir() {
				path = filepath.Join(path, iface)
				if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
					continue
				}
			}
			out = append(out, path)
		}
		return out, nil
	}
}

// set changes the settings in every record that find returns. It is an error if there is no
// record. No error contains a value, since it may be secret.
func (db *database) set(find where, settings []setting) error {
	for _, s := range settings {
		if len(s.value) > maxSecret || strings.ContainsAny(s.value, "\n\r\x00") || strings.TrimSpace(s.value) != s.value {
			return fmt.Errorf("iscsi.secretRef: the value of %s, want one line of at most %d bytes without spaces around it", s.name, maxSecret)
		}
	}
	set := false
	for _, p := range places {
		files, err := find(filepath.Join("/", db.root, p))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, f := range files {
			old, err := safefile.ReadFile(f, maxFile)
			if err != nil {
				return err
			}
			dir := durable.Dir{Path: filepath.Dir(f), Disk: durable.OS{DirMode: 0o700, FileMode: 0o600}}
			if err := dir.Replace(filepath.Base(f), changed(old, settings)); err != nil {
				return err
			}
			set = true
		}
	}
	if !set {
		return errors.New("iscsiadm created no record in its database for the secret")
	}
	return nil
}

// end is the last line of a record.
const end = "# END RECORD"

// changed returns the record with new settings, each once, before the last line.
func changed(record []byte, settings []setting) []byte {
	var out, last bytes.Buffer
	for line := range bytes.Lines(record) {
		line = append(bytes.TrimRight(line, "\n"), '\n')
		name, _, _ := bytes.Cut(line, []byte("="))
		switch {
		case slices.ContainsFunc(settings, func(s setting) bool { return s.name == string(bytes.TrimSpace(name)) }):
		case bytes.HasPrefix(line, []byte(end)):
			last.Write(line)
		default:
			out.Write(line)
		}
	}
	for _, s := range settings {
		fmt.Fprintf(&out, "%s = %s\n", s.name, s.value)
	}
	out.Write(last.Bytes())
	return out.Bytes()
}
