package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/safefile"
)

// The file of the state, and its bounds: the owner of the node may have edited it.
const (
	// stateVersion changes when a field gets another meaning; a state of another
	// version is set aside.
	stateVersion = 1
	stateFile    = "bridge.json"
	maxState     = 64 << 10 // bytes
	maxStateList = 1024
	maxBootID    = 128
)

// state is the content of StateDir: the chosen subnet, and the settings made on the
// machine.
type state struct {
	Version int          `json:"v"`
	Subnet  netip.Prefix `json:"subnet,omitzero"` // chosen, not given
	// Forward4 and Forward6 are the IDs of the boots in which this plugin turned forwarding on.
	// "" means that it did not.
	Forward4 string `json:"forward4,omitempty"`
	Forward6 string `json:"forward6,omitempty"`
	// AcceptRA are the interfaces whose accept_ra was raised from 1 to 2.
	AcceptRA []string `json:"acceptRA,omitempty"`
}

// parseState reads the file. Its names become parts of paths below /proc/sys/net.
func parseState(b []byte) (state, error) {
	if len(b) > maxState {
		return state{}, fmt.Errorf("state file has %d bytes; want at most %d", len(b), maxState)
	}
	var s state
	if err := json.Unmarshal(b, &s); err != nil {
		return state{}, err
	}
	// A newer agent may give these fields another meaning.
	if s.Version != stateVersion {
		return state{}, fmt.Errorf("version is %d; want %d", s.Version, stateVersion)
	}
	if s.Subnet != (netip.Prefix{}) {
		if err := validSubnet(s.Subnet); err != nil {
			return state{}, fmt.Errorf("subnet %w", err)
		}
	}
	if len(s.Forward4) > maxBootID || len(s.Forward6) > maxBootID || len(s.AcceptRA) > maxStateList {
		return state{}, errors.New("a field is too long")
	}
	for _, name := range s.AcceptRA {
		if !safeElement(name) {
			return state{}, fmt.Errorf("acceptRA %q is not an interface name", name)
		}
	}
	return s, nil
}

// safeElement reports whether an interface name can be an element of a path. It accepts
// more than validIfname: the interfaces of other programs may have any name that the
// kernel allows.
func safeElement(name string) bool {
	if name == "" || len(name) > maxIfname || name == "." || name == ".." {
		return false
	}
	for i := range len(name) {
		if name[i] <= ' ' || name[i] == '/' || name[i] == 0x7f {
			return false
		}
	}
	return true
}

// stateDir returns the directory. Changes are synced to the disk, since the chosen
// subnet must survive a reboot.
func stateDir(path string) durable.Dir {
	return durable.Dir{Path: path, Disk: durable.OS{DirMode: 0o700, FileMode: 0o600, Limit: maxState}, Sync: true}
}

// readState returns the stored state, which is empty if there is none. A damaged file is set
// aside, and the state is empty. The lost values are then read from the kernel: the subnet from
// the bridge, and the dropped forwarding from the table.
func readState(dir durable.Dir, log *zap.Logger) (s state, err error) {
	b, err := dir.Read(stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return state{Version: stateVersion}, nil
	}
	if err == nil {
		s, err = parseState(b)
		// A failing disk is not a damaged file: setting an intact file aside would
		// lose it.
	} else if isDisk(err) {
		return state{}, fmt.Errorf("Config.StateDir %s: %w", dir.Path, err)
	}
	if err != nil {
		log.Warn("renamed damaged state of bridge network", zap.String("file", stateFile), zap.String("aside", dir.SetAside(stateFile)), zap.Error(err))
		return state{Version: stateVersion}, nil
	}
	return s, nil
}

// writeState creates the directory if it is missing, and replaces the file.
func writeState(dir durable.Dir, s state) error {
	if err := dir.Prepare(); err != nil {
		return err
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return dir.Replace(stateFile, b)
}

// isDisk reports whether an error is a failure of the disk, not of the file's content.
func isDisk(err error) bool {
	return !errors.Is(err, safefile.ErrTooLarge) && !errors.Is(err, safefile.ErrNotRegular)
}
