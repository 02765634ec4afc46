package dra

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/safefile"
)

// A kubelet's own file of claims, for nodes that change from a kubelet to this agent, and perhaps
// back. The file is read if a kubelet wrote it last, and kept up to date for the next kubelet. If
// the node has no such file, none is created.

const (
	// kubeletFile is the file in the kubelet's root directory that lists its prepared claims.
	kubeletFile = "dra_manager_state"
	// maxKubeletFile is the largest size that is read, in bytes: four times the file for 250 pods
	// with claims of 16 devices.
	maxKubeletFile = 4 << 20
	// kubeletKey is the key under which the store has a checksum: that of the kubelet's file as
	// this agent last wrote it.
	kubeletKey = "kubelet"

	// The values that the kubelet writes into the file. Any other value means an unknown format.
	kubeletKind    = "DRACheckpoint"
	kubeletVersion = "checkpoint.dra.kubelet.k8s.io/v1"
)

// kubeletFormat is the JSON of the kubelet's file. Data is JSON in a string; the checksum covers
// the string's bytes.
type kubeletFormat struct {
	Data     string
	Checksum uint32 // CRC-32 of Data (IEEE)
}

// kubeletData is the JSON in Data. Fields without tags have the kubelet's names.
type kubeletData struct {
	Kind               string `json:"kind,omitempty"`
	APIVersion         string `json:"apiVersion,omitempty"`
	ClaimInfoStateList []kubeletClaim
}

// kubeletClaim is the kubelet's record of a claim. PodUIDs is a set: an object with
// empty values.
type kubeletClaim struct {
	ClaimUID    types.UID
	ClaimName   string
	Namespace   string
	PodUIDs     map[types.UID]struct{}
	DriverState map[string]kubeletDriver
}

// kubeletDriver is the kubelet's record of a driver of a claim. It has no devices if the driver has
// not prepared them yet, or returned none.
type kubeletDriver struct {
	Devices []kubeletDevice
}

// kubeletDevice is a device as a driver returned it.
type kubeletDevice struct {
	PoolName   string
	DeviceName string
	// ShareID is nil for a device that is not shared.
	ShareID      *string
	RequestNames []string
	CDIDeviceIDs []string
}

// decodeKubelet parses a kubelet's file. Entries that no kubelet can have written are omitted and
// returned as problems. An error means that the whole file is damaged, or has an unknown version.
func decodeKubelet(b []byte) (records []*record, checksum uint32, problems []error, err error) {
	var f kubeletFormat
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, 0, nil, err
	}
	if sum := crc32.ChecksumIEEE([]byte(f.Data)); sum != f.Checksum {
		return nil, 0, nil, fmt.Errorf("checksum is %d; want %d", f.Checksum, sum)
	}
	var data kubeletData
	if err := json.Unmarshal([]byte(f.Data), &data); err != nil {
		return nil, 0, nil, err
	}
	if data.Kind != kubeletKind || data.APIVersion != kubeletVersion {
		return nil, 0, nil, fmt.Errorf("kind is %q of %q; want %s of %s", data.Kind, data.APIVersion, kubeletKind, kubeletVersion)
	}
	seen := map[types.UID]bool{}
	for i, c := range data.ClaimInfoStateList {
		r := c.record()
		// Checked like this agent's own records, so that the record can be stored and read again.
		value, err := json.Marshal(r)
		if err == nil {
			_, err = parseRecord(r.UID, value)
		}
		if err == nil && seen[r.UID] {
			err = fmt.Errorf("uid %q is in two entries", r.UID)
		}
		seen[r.UID] = true
		if err != nil {
			problems = append(problems, fmt.Errorf("claim %d: %w", i, err))
			continue
		}
		records = append(records, r)
	}
	return records, f.Checksum, problems, nil
}

// record converts the claim to this agent's format. Boot stays empty, since the kubelet does not
// store it.
func (c *kubeletClaim) record() *record {
	r := &record{Version: recordVersion, UID: c.ClaimUID, Namespace: c.Namespace, Name: c.ClaimName}
	for _, uid := range slices.Sorted(maps.Keys(c.PodUIDs)) {
		r.Pods = append(r.Pods, &podRef{UID: uid})
	}
	for _, name := range slices.Sorted(maps.Keys(c.DriverState)) {
		d := driverRecord{Name: name}
		for _, device := range c.DriverState[name].Devices {
			out := Device{Pool: device.PoolName, Name: device.DeviceName, Requests: device.RequestNames, CDI: device.CDIDeviceIDs}
			if device.ShareID != nil {
				out.Share = *device.ShareID
			}
			d.Devices = append(d.Devices, out)
		}
		// The kubelet does not store whether a driver has answered. If there are no devices, the
		// driver is called again, which is harmless.
		d.Prepared = len(d.Devices) > 0
		r.Drivers = append(r.Drivers, d)
	}
	return r
}

// encodeKubelet encodes claims as a kubelet would. Equal claims give equal bytes: the encoder
// sorts the keys of maps, and this function sorts the claims.
func encodeKubelet(records []record) (b []byte, checksum uint32, err error) {
	data := kubeletData{Kind: kubeletKind, APIVersion: kubeletVersion, ClaimInfoStateList: make([]kubeletClaim, 0, len(records))}
	records = slices.Clone(records)
	slices.SortFunc(records, func(a, b record) int { return cmp.Compare(a.UID, b.UID) })
	for _, r := range records {
		c := kubeletClaim{ClaimUID: r.UID, ClaimName: r.Name, Namespace: r.Namespace, PodUIDs: map[types.UID]struct{}{}, DriverState: map[string]kubeletDriver{}}
		for _, p := range r.Pods {
			c.PodUIDs[p.UID] = struct{}{}
		}
		for _, d := range r.Drivers {
			var out kubeletDriver
			for _, device := range d.Devices {
				k := kubeletDevice{PoolName: device.Pool, DeviceName: device.Name, RequestNames: device.Requests, CDIDeviceIDs: device.CDI}
				if device.Share != "" {
					k.ShareID = &device.Share
				}
				out.Devices = append(out.Devices, k)
			}
			c.DriverState[d.Name] = out
		}
		data.ClaimInfoStateList = append(data.ClaimInfoStateList, c)
	}
	text, err := json.Marshal(data)
	if err != nil {
		return nil, 0, err
	}
	f := kubeletFormat{Data: string(text), Checksum: crc32.ChecksumIEEE(text)}
	b, err = json.Marshal(f)
	return b, f.Checksum, err
}

// fromKubelet returns the claims that a kubelet prepared, if a kubelet wrote the file after this
// agent. (The agent keeps an existing file up to date, so that a kubelet can continue from it.) A
// damaged file is logged and ignored; a kubelet would refuse to start.
func (m *Manager) fromKubelet() []*record {
	if m.cfg.KubeletDir == "" {
		return nil
	}
	b, err := safefile.ReadFile(filepath.Join(m.cfg.KubeletDir, kubeletFile), maxKubeletFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// An unreadable file is replaced later too, since a kubelet refuses to start with it.
	m.mu.Lock()
	m.shared = true
	m.mu.Unlock()
	var records []*record
	var checksum uint32
	var problems []error
	if err == nil {
		records, checksum, problems, err = decodeKubelet(b)
	}
	if err != nil {
		m.cfg.Log.Warn("ignored the kubelet's claim checkpoint", zap.Error(err))
		return nil
	}
	// This agent wrote the file, and its own records contain more: uses, boots and the names of
	// pods.
	if had, err := m.cfg.Store.Read(kubeletKey); err == nil && string(had) == strconv.FormatUint(uint64(checksum), 10) {
		return nil
	}
	for _, err := range problems {
		m.cfg.Log.Warn("ignored entry of the kubelet's claim checkpoint", zap.Error(err))
	}
	m.cfg.Log.Info("took over claims from a kubelet", zap.Int("claims", len(records)))
	return records
}

// inherit takes over a claim of a kubelet, and stores it. Claims of running pods were prepared in
// this boot, so their drivers are not called again. Other claims are prepared again, or
// unprepared.
func (m *Manager) inherit(r *record) {
	m.mu.Lock()
	for _, p := range r.Pods {
		if m.blind || m.alive[p.UID] {
			r.Boot = m.cfg.Boot
		}
	}
	m.mu.Unlock()
	m.adopt(r)
	m.mu.Lock()
	c := m.claims[r.UID]
	// The record is not stored in this agent's format yet.
	c.gen++
	m.mu.Unlock()
	if err := m.saveOne(c); err != nil {
		m.cfg.Log.Error("failed to record claim of a kubelet", zap.String("claim", c.String()), zap.Error(err))
	}
}

// keepKubeletFile keeps the kubelet's file up to date until done is closed; then it writes once
// more if something has changed. A failed write is logged, and the next change of a claim leads
// to another attempt.
func (m *Manager) keepKubeletFile(done <-chan struct{}) {
	for ended := false; !ended; {
		select {
		case <-m.kubeletOutdated:
		case <-done:
			ended = true
			select {
			case <-m.kubeletOutdated:
			default:
				return
			}
		}
		if err := m.writeKubeletFile(); err != nil {
			m.cfg.Log.Warn("failed to write the kubelet's claim checkpoint", zap.Error(err))
		}
	}
}

// writeKubeletFile writes the current claims into the kubelet's file, if the node has one. It reads
// the state itself, so that the file is never older than the last setting of kubeletOutdated.
func (m *Manager) writeKubeletFile() error {
	m.mu.Lock()
	shared := m.shared
	var records []record
	for _, c := range m.claims {
		if shared && len(c.pods) > 0 {
			records = append(records, c.record(m.cfg.Boot))
		}
	}
	m.mu.Unlock()
	if !shared {
		return nil
	}
	// Encodes and writes a snapshot, so that neither delays the manager.
	b, checksum, err := encodeKubelet(records)
	if err != nil {
		return err
	}
	dir, err := safefile.OpenDir(m.cfg.KubeletDir, ".")
	if err != nil {
		return err
	}
	if err := errors.Join(dir.Replace(kubeletFile, b, 0o600), dir.Close()); err != nil {
		return err
	}
	// The file is written first. After a crash between the two writes, the file counts as a
	// kubelet's, with the same claims.
	return m.cfg.Store.Write(kubeletKey, strconv.AppendUint(nil, uint64(checksum), 10))
}
