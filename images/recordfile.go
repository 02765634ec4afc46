package images

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/internal/safefile"
)

// The files have the kubelet's format (KEP-2535), so that a node can change between agent and
// kubelet. The kubelet writes v1beta1, or v1alpha1 with the same fields, and reads both.
const (
	recordVersion    = "kubelet.config.k8s.io/v1beta1"
	recordVersionOld = "kubelet.config.k8s.io/v1alpha1"
	intentKind       = "ImagePullIntent"
	recordKind       = "ImagePulledRecord"

	// The subdirectories of Config.Records.
	intentDir = "pulling"
	recordDir = "pulled"

	recordPrefix = "sha256-"
)

// pullIntent records that a pull has begun and not ended.
type pullIntent struct {
	metav1.TypeMeta `json:",inline"`
	// Image is the requested name.
	Image string `json:"image"`
}

// pulledRecord has the credentials with which an image was pulled. Records in the index are
// immutable.
type pulledRecord struct {
	metav1.TypeMeta `json:",inline"`
	LastUpdatedTime metav1.Time `json:"lastUpdatedTime"` // whole seconds in the file
	// ImageRef is the runtime's reference of the image.
	ImageRef string `json:"imageRef"`
	// CredentialMapping has the credentials by repository: the image's name without tag and
	// digest.
	CredentialMapping map[string]pullCredentials `json:"credentialMapping,omitempty"`
}

// pullCredentials has credentials that a registry accepted for an image.
type pullCredentials struct {
	KubernetesSecrets         []pullSecret     `json:"kubernetesSecrets,omitempty"`
	KubernetesServiceAccounts []ServiceAccount `json:"kubernetesServiceAccounts,omitempty"`
	// NodePodsAccessible means that the pull used the node's own credentials, or none: all pods
	// of the node may use the image.
	NodePodsAccessible bool `json:"nodePodsAccessible,omitempty"`
}

// pullSecret is one credential of a Secret, with the hash of its content: see credential.hash.
type pullSecret struct {
	UID            string `json:"uid"`
	Namespace      string `json:"namespace"`
	Name           string `json:"name"`
	CredentialHash string `json:"credentialHash"`
}

// ServiceAccount identifies the service account with whose token an image was pulled.
type ServiceAccount struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// recordName returns the file name for an image, which has a hash of the reference, as in the
// kubelet.
func recordName(key string) string {
	sum := sha256.Sum256([]byte(key))
	return recordPrefix + hex.EncodeToString(sum[:])
}

// decodeIntent decodes a file of intentDir. Unknown fields are ignored: a newer kubelet may have
// written them.
func decodeIntent(name string, b []byte) (*pullIntent, error) {
	i := &pullIntent{}
	if err := json.Unmarshal(b, i); err != nil {
		return nil, err
	}
	return i, checkFile(name, i.TypeMeta, intentKind, i.Image)
}

// decodeRecord decodes a file of recordDir.
func decodeRecord(name string, b []byte) (*pulledRecord, error) {
	r := &pulledRecord{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, err
	}
	return r, checkFile(name, r.TypeMeta, recordKind, r.ImageRef)
}

// checkFile validates kind, version and name of a file. It rejects a record under the file name
// of another image, which would give access to that image.
func checkFile(name string, t metav1.TypeMeta, kind, key string) error {
	switch {
	case t.Kind != kind || t.APIVersion != recordVersion && t.APIVersion != recordVersionOld:
		return fmt.Errorf("%q of %q: want %s of %s", t.Kind, t.APIVersion, kind, recordVersion)
	case key == "" || name != recordName(key):
		return fmt.Errorf("record is for image %q, which has another file name", key)
	}
	return nil
}

// writeRecord replaces a file atomically by the JSON of v. After success, the new file survives a
// crash; after an error, the file has either the old or the new content.
//
// Package checkpoint is not used, since the kubelet could not read its header. The caller must
// hold records.disk, because the name of the temporary file is not unique. The content is synced
// before the rename, and the directory after it.
func writeRecord(dir, name string, v any) (err error) {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	// Readable only by the agent, since the records decide which pod may use which image.
	if err := safefile.MakeDirs(dir, 0o700); err != nil {
		return err
	}
	held, err := safefile.OpenDir(dir, ".")
	if err != nil {
		return err
	}
	defer func() { _ = held.Close() }()
	temp := "." + name + ".tmp"
	defer func() {
		if err != nil {
			_ = held.Remove(temp)
		}
	}()
	// Remove a file that a crash left: Create fails if the file exists.
	if err := held.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := held.Create(temp, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := held.Rename(temp, name); err != nil {
		return err
	}
	return safefile.SyncDir(dir)
}

// removeRecord removes a file without a sync. After a crash the file may exist again: then the
// intent is settled again, or the record is pruned again.
func removeRecord(dir, name string) error {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readRecords calls each for every record file of a directory. If the file cannot be read, broken
// is the error, and otherwise nil. readRecords removes temporary files of a crash and ignores
// other files. A missing directory counts as empty.
func readRecords(dir string, each func(name string, b []byte, broken error)) error {
	held, err := safefile.OpenDir(dir, ".")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = held.Close() }()
	entries, err := held.Entries(maxRecords)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case strings.HasPrefix(name, "."+recordPrefix) && strings.HasSuffix(name, ".tmp"):
			_ = held.Remove(name) // a temporary file of a crash
		case strings.HasPrefix(name, recordPrefix):
			b, err := safefile.ReadIn(dir, name, maxRecord)
			each(name, b, err)
		}
	}
	return nil
}

// Limits for reading. A node has some hundred images, and a record some hundred bytes per secret.
const (
	maxRecords = 100_000
	maxRecord  = 16 << 20 // bytes
)
