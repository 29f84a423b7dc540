// Package archivetest runs an S3 server of another make for tests: versitygw,
// built from its module, on a directory of the test.
package archivetest
