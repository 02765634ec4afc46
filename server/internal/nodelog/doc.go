// Package nodelog serves a node's own logs: the files below a directory, and
// with a query (KEP-2258) the journal of a service or its log file.
//
//	http.Handle("/logs/", http.StripPrefix("/logs", nodelog.Handler(nodelog.Config{Query: true})))
//
//	GET /logs/kubelet.log                         a file
//	GET /logs/?query=kubelet&tailLines=100        a service
//	GET /logs/?query=containers/app.log           a file, by a query
//
// No path, link or query leads out of the directory, and what is neither a
// file nor a directory is not opened. Files are plain text or bytes, also those
// with the name of a page, and browsers are told not to guess. A file system
// that does not answer ends a request after 10 seconds. Names of services reach journalctl only
// if they have nothing but letters, digits and _.:@- in them.
package nodelog
