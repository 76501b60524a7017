# Certificates for tests: $T/NAME.crt and $T/NAME.key.

# make_ca NAME: creates an authority.
make_ca() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 2 -subj "/CN=$1" \
    -addext basicConstraints=critical,CA:TRUE -keyout "$T/$1.key" -out "$T/$1.crt" 2>/dev/null
}

# make_cert NAME CA DAYS [SAN]: creates a certificate for 127.0.0.1 and 10.77.0.1, or for SAN.
make_cert() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj "/CN=$1" \
    -keyout "$T/$1.key" -out "$T/$1.csr" 2>/dev/null
  openssl x509 -req -in "$T/$1.csr" -CA "$T/$2.crt" -CAkey "$T/$2.key" -CAcreateserial -days "$3" \
    -extfile <(echo "subjectAltName=${4:-IP:127.0.0.1,IP:10.77.0.1}") -out "$T/$1.crt" 2>/dev/null
}
