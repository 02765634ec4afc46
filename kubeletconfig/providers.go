package kubeletconfig

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	credentials "k8s.io/kubelet/config/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodewright/nodewright/internal/manifestguard"
	"github.com/nodewright/nodewright/internal/safefile"
)

const (
	providersGroup  = "kubelet.config.k8s.io"
	providersKind   = "CredentialProviderConfig"
	providerVersion = "credentialprovider.kubelet.k8s.io/v1"
)

// versions are the API versions of both API groups. Older versions have a subset of the fields.
var versions = []string{"v1", "v1beta1", "v1alpha1"}

// CredentialProviders is the configuration of programs that return credentials for image pulls.
type CredentialProviders struct {
	Providers []credentials.CredentialProvider
	// Hash is a hash of the files' content: sha256: and hexadecimal digits. It is a label of the
	// kubelet's metric kubelet_credential_provider_config_info.
	Hash string
}

// LoadCredentialProviders reads a CredentialProviderConfig of version v1, v1beta1 or v1alpha1.
// path is a file or a directory. In a directory it reads the files *.json, *.yaml and *.yml in the
// order of their names. The error contains all mistakes. Each provider must have a unique name and
// a DefaultCacheDuration. TokenAttributes must set RequireServiceAccount.
func LoadCredentialProviders(path string) (CredentialProviders, error) {
	files, err := providerFiles(path)
	if err != nil {
		return CredentialProviders{}, err
	}
	var all CredentialProviders
	var errs []error
	left, sum, names := int64(maxBytes), sha256.New(), map[string]bool{}
	for _, file := range files {
		raw, err := readFile(file, &left)
		if err != nil {
			return CredentialProviders{}, err
		}
		_ = binary.Write(sum, binary.BigEndian, uint64(len(raw))) // writing to a hash does not fail
		sum.Write(raw)
		list, err := parseProviders(raw)
		if err != nil && len(files) > 1 {
			err = fmt.Errorf("%s: %w", file, err)
		}
		errs = append(errs, err)
		for _, p := range list {
			if names[p.Name] {
				errs = append(errs, fmt.Errorf("%s: provider %s is defined twice", file, show(p.Name)))
			}
			names[p.Name] = true
		}
		all.Providers = append(all.Providers, list...)
	}
	if err := errors.Join(errs...); err != nil {
		return CredentialProviders{}, err
	}
	all.Hash = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	return all, nil
}

// providerFiles returns path itself or, if path is a directory, the configuration files in the
// directory.
func providerFiles(path string) ([]string, error) {
	if fi, err := os.Stat(path); err != nil || !fi.IsDir() {
		return []string{path}, nil //nolint:nilerr // reading the file returns the error
	}
	dir, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	names, err := safefile.Names(dir, maxDropIns)
	if err != nil {
		return nil, fmt.Errorf("%s: want at most %d files in the directory: %w", path, maxDropIns, err)
	}
	var files []string
	for _, name := range names {
		file := filepath.Join(path, name)
		if fi, err := os.Stat(file); err == nil && !fi.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(name)) {
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: want a file *.json, *.yaml or *.yml in the directory", path)
	}
	slices.Sort(files)
	return files, nil
}

func parseProviders(raw []byte) ([]credentials.CredentialProvider, error) {
	if err := manifestguard.Aliases(raw, maxExpanded); err != nil {
		return nil, err
	}
	var conf credentials.CredentialProviderConfig
	if err := yaml.UnmarshalStrict(raw, &conf); err != nil {
		return nil, err
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	group, version, _ := strings.Cut(conf.APIVersion, "/")
	if group != providersGroup || !slices.Contains(versions, version) || conf.Kind != providersKind {
		bad("%s of %q: want %s of %s/v1, v1beta1 or v1alpha1", conf.Kind, conf.APIVersion, providersKind, providersGroup)
	}
	if len(conf.Providers) == 0 {
		bad("providers is empty: want one or more")
	}
	for i, p := range conf.Providers {
		at := fmt.Sprintf("providers[%d].", i)
		if v, ok := strings.CutPrefix(p.APIVersion, "credentialprovider.kubelet.k8s.io/"); !ok || !slices.Contains(versions, v) {
			bad("%sapiVersion: %q: want %s, or its v1beta1 or v1alpha1", at, p.APIVersion, providerVersion)
		}
		if t := p.TokenAttributes; t != nil {
			if p.APIVersion != providerVersion {
				bad("%stokenAttributes: with apiVersion %q: want %s", at, p.APIVersion, providerVersion)
			}
			for _, err := range wrongTokens(t) {
				bad("%stokenAttributes.%w", at, err)
			}
		}
		if p.DefaultCacheDuration == nil {
			bad("%sdefaultCacheDuration is required", at)
		}
	}
	return conf.Providers, errors.Join(errs...)
}

// wrongTokens returns the mistakes in a provider's token attributes.
func wrongTokens(t *credentials.ServiceAccountTokenAttributes) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if t.ServiceAccountTokenAudience == "" {
		bad("serviceAccountTokenAudience is required")
	}
	if t.RequireServiceAccount == nil {
		bad("requireServiceAccount is required")
	} else if !*t.RequireServiceAccount && len(t.RequiredServiceAccountAnnotationKeys) > 0 {
		bad("requiredServiceAccountAnnotationKeys: %s: want none, or requireServiceAccount: true", show(t.RequiredServiceAccountAnnotationKeys))
	}
	if c := t.CacheType; c != credentials.ServiceAccountServiceAccountTokenCacheType && c != credentials.TokenServiceAccountTokenCacheType {
		bad("cacheType: %q: want ServiceAccount or Token", c)
	}
	seen := map[string]bool{}
	for _, list := range []struct {
		field string
		keys  []string
	}{{"requiredServiceAccountAnnotationKeys", t.RequiredServiceAccountAnnotationKeys}, {"optionalServiceAccountAnnotationKeys", t.OptionalServiceAccountAnnotationKeys}} {
		for _, k := range list.keys {
			if msgs := validation.IsQualifiedName(strings.ToLower(k)); len(msgs) > 0 {
				bad("%s: %s: %s", list.field, show(k), msgs[0])
			}
			if seen[k] {
				bad("%s: %s: want each key once", list.field, show(k))
			}
			seen[k] = true
		}
	}
	return errs
}
