package kubeletconfig

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxDropIns limits the files and directories below a directory of drop-ins.
const maxDropIns = 1000

// dropIns returns the *.conf files below dir in lexical order, and a warning for each other regular
// file.
func dropIns(dir string) (files, warnings []string, err error) {
	fi, err := os.Stat(dir)
	if err != nil {
		return nil, nil, err
	}
	if !fi.IsDir() {
		return nil, nil, fmt.Errorf("--config-dir=%q: want a directory", dir)
	}
	n := 0
	// The trailing slash makes WalkDir follow dir if it is a symbolic link.
	err = filepath.WalkDir(filepath.Clean(dir)+"/", func(path string, d fs.DirEntry, err error) error {
		if n++; n > maxDropIns {
			return fmt.Errorf("--config-dir=%q: want at most %d files below it", dir, maxDropIns)
		}
		switch {
		case err != nil || d.IsDir():
		case strings.HasSuffix(path, ".conf"):
			files = append(files, path)
		case d.Type().IsRegular():
			warnings = append(warnings, path+": ignored: the name of a drop-in must end in .conf")
		}
		return err
	})
	return files, warnings, err
}

// mergePatch applies a JSON merge patch (RFC 7396) to target, which it may change, and returns the
// result.
func mergePatch(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, ok := target.(map[string]any)
	if !ok {
		t = map[string]any{}
	}
	for k, v := range p {
		if v == nil {
			delete(t, k)
			continue
		}
		t[k] = mergePatch(t[k], v)
	}
	return t
}

// resolvePaths makes relative paths in the main file relative to its directory.
func resolvePaths(doc map[string]any, file string) error {
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	resolve := func(in map[string]any, field string) {
		if p, ok := in[field].(string); ok && p != "" && !filepath.IsAbs(p) {
			in[field] = filepath.Join(filepath.Dir(file), p)
		}
	}
	for _, field := range []string{"staticPodPath", "resolvConf", "podLogsDir", "tlsCertFile", "tlsPrivateKeyFile"} {
		resolve(doc, field)
	}
	authentication, _ := doc["authentication"].(map[string]any)
	x509, _ := authentication["x509"].(map[string]any)
	resolve(x509, "clientCAFile")
	return nil
}
