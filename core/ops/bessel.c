// Bessel functions. Each is a Chebyshev series near the origin and one in 1/x far from it; the coefficients are those
// of the interpolation at 80 Chebyshev points with 40 digits, cut where they no longer show in float64.
#include <math.h>

#include "ops/chebyshev.h"
#include "ops/elementwise.h"

#define K(x, value) pj_constant_like(h, (x), (value))

static const double I0_SMALL[] = {
    0.338397637204738042, -0.304682672343198399, 0.171620901522208775, -0.0949010970480476444,
    0.0493052842396707085, -0.0237374148058994688, 0.0105464603945949983, -0.00432430999505057594,
    0.0016394756169413358, -0.000576375574538582366, 0.000188502885095841656, -0.000057541950100821037,
    0.0000164484480707288971, -4.41673835845875056e-6, 1.11738753912010372e-6, -2.67079385394061173e-7,
    6.04699502254191895e-8, -1.30002500998624804e-8, 2.65982372468238665e-9, -5.18979560163526291e-10,
    9.67580903537323691e-11, -1.72682629144155571e-11, 2.95505266312963983e-12, -4.85644678311192946e-13,
    7.67618549860493562e-14, -1.16853328779934517e-14, 1.71539128555513303e-15, -2.43127984654795469e-16,
    3.3307945188222381e-17, -4.41534164647933938e-18};
static const double I0_LARGE[] = {
    0.402245205507054416, 0.00336911647825569409, 0.0000688975834691682398, 2.89137052083475648e-6,
    2.04891858946906374e-7, 2.26666899049817806e-8, 3.39623202570838635e-9, 4.94060238822496959e-10,
    1.18891471078464383e-11, -3.14991652796324136e-11, -1.32158118404477131e-11, -1.79417853150680612e-12,
    7.18012445138366623e-13, 3.8527783827421427e-13, 1.54008621752140983e-14, -4.15056934728722209e-14,
    -9.55484669882830765e-15, 3.81168066935262242e-15, 1.77256013305652638e-15, -3.42548561967721913e-16,
    -2.82762398051658348e-16, 3.46122286769746109e-17, 4.46562142029676e-17, -4.83050448594418207e-18,
    -7.23318048787475395e-18};
static const double I1_SMALL[] = {
    0.126293593221816827, -0.176416518357834055, 0.102643658689847095, -0.0529459812080949914,
    0.0247264490306265168, -0.0105640848946261982, 0.00415642294431288816, -0.00151357245063125315,
    0.000512285956168575773, -0.000161760815825896746, 0.0000478156510755005423, -0.0000132731636560394358,
    3.47025130813767848e-6, -8.56872026469545474e-7, 2.00329475355213526e-7, -4.44505912879632808e-8,
    9.38153738649577178e-9, -1.88724975172282929e-9, 3.62559028155211704e-10, -6.66348972350202774e-11,
    1.17361862988909016e-11, -1.98397439776494372e-12, 3.22379336594557471e-13, -5.04218550472791169e-14,
    7.60068429473540693e-15, -1.10559694773538631e-15, 1.55363195773620047e-16, -2.11142121435816608e-17,
    2.77791411276104637e-18};
static const double I1_LARGE[] = {
    0.38928811750914006, -0.00976109749136146841, -0.000110588938762623716, -3.88256480887769039e-6,
    -2.51223623787020893e-7, -2.63146884688951951e-8, -3.83538038596423702e-9, -5.58974346219658381e-10,
    -1.89749581235054123e-11, 3.25260358301548824e-11, 1.41258074366137813e-11, 2.03562854414708951e-12,
    -7.19855177624590851e-13, -4.08355111109219732e-13, -2.10154184277266431e-14, 4.27244001671195135e-14,
    1.04202769841288028e-14, -3.8144030724370078e-15, -1.88035477551078245e-15, 3.30820231092092828e-16,
    2.96262899764595014e-16, -3.20952592199342396e-17, -4.65030536848935833e-17, 4.41434832307170795e-18,
    7.51729631084210481e-18};
static const double J0_SMALL[] = {
    0.15772797147489012, -0.00872344235285222129, 0.26517861320333681, -0.370094993872649779,
    0.158067102332097261, -0.0348937694114088852, 0.0048191800694676045, -0.000460626166206275048,
    0.0000324603288210050808, -1.76194690776215075e-6, 7.60816359241878187e-8, -2.6792535305576729e-9,
    7.84869631447946442e-11, -1.94383468673701657e-12, 4.12532059563437393e-14, -7.58850812544754634e-16,
    1.2218515873961411e-17};
static const double J1_SMALL[] = {
    0.0810448463256581151, -0.148975145067652109, 0.160999262357209703, -0.0826804917668179066,
    0.0222136396549660354, -0.00364694060076927596, 0.000405033772835482183, -0.0000325555486685725852,
    1.98587740499151674e-6, -9.52198475675043618e-8, 3.68713375909714824e-9, -1.17802662269588484e-10,
    3.16015458034800332e-12, -7.22175523965177343e-14, 1.42321440035139423e-15, -2.44419729161904639e-17};
static const double Y0_SMALL[] = {
    -0.0331461132032849417, -0.274474305529745265, 0.179034314077182663, 0.261567346255046637,
    -0.177302012781143582, 0.0471966895957633869, -0.00728796247955207918, 0.000753113593257774228,
    -0.0000563207914105698698, 3.20653253765480098e-6, -1.44072332740186995e-7, 5.24879478733051612e-9,
    -1.58375525418120151e-10, 4.02633081830612075e-12, -8.74734120331076955e-14, 1.6434898714919469e-15,
    -2.69778811525668356e-17};
static const double Y1_SMALL[] = {
    0.00253801323574178173, -0.0160871730476687502, -0.0959120453608307425, 0.0844519725965234584,
    -0.0283281239445943656, 0.00528989754416711301, -0.000641455145132635599, 0.0000550598287333874384,
    -3.5380800186893499e-6, 1.77078045561544034e-7, -7.11055004989927978e-9, 2.34433790591151639e-10,
    -6.46515184141159424e-12, 1.51429151205001995e-13, -3.05118596944732527e-15, 5.34668038572867012e-17};
static const double J0_P[] = {
    0.999460349347518665, -0.000536522046813211742, 3.07518478751947462e-6, -5.1705945376060977e-8,
    1.63064646351513831e-9, -7.86409137723707e-11, 5.16826238734919246e-12, -4.30457886992539122e-13,
    4.32659574315494056e-14, -5.06903409593523608e-15, 6.7480722157338737e-16, -1.00115137234677858e-16,
    1.63059192337441847e-17};
static const double J0_Q[] = {
    -0.0155558546053370091, 0.000068385199426116496, -7.41449841106064726e-7, 1.79724572479689918e-8,
    -7.27191593686631998e-10, 4.22012190466873844e-11, -3.20674742099663474e-12, 3.00614512535170631e-13,
    -3.336328185322427e-14, 4.25522504024546112e-15, -6.09993013164005001e-16, 9.66212897030325674e-17,
    -1.66860652143781463e-17, 3.10824404867381443e-18, -6.19111578735814493e-19};
static const double J1_P[] = {
    1.0009030408600137, 0.000898989833085940856, -3.98728430048890852e-6, 6.17763396064429853e-8,
    -1.87189074910630661e-9, 8.8168986595823389e-11, -5.7048636403956447e-12, 4.69919551523054238e-13,
    -4.68422378399048922e-14, 5.45267489604471717e-15, -7.22118084227401792e-16, 1.06676891143354125e-16,
    -1.7312313216116335e-17};
static const double J1_Q[] = {
    0.0467777870695353252, -0.0000962772354915707932, 9.13861525795545412e-7, -2.09597813840834225e-8,
    8.22919332765055413e-10, -4.68636368817694523e-11, 3.51521879496860809e-12, -3.26431567432789993e-13,
    3.59677658291652919e-14, -4.56125239507729719e-15, 6.50828295778338395e-16, -1.02691475318232429e-16,
    1.76763554877647916e-17, -3.28345198729816146e-18, 6.5240811495892603e-19};
static const double K0_SMALL[] = {
    -0.267663696616951384, 0.344289899924628487, 0.0359799365153615016, 0.00126461541144692592,
    0.0000228621210311945179, 2.53479107902614946e-7, 1.90451637722020886e-9, 1.03496952576336246e-11,
    4.25981614279108258e-14, 1.3744654358807509e-16};
static const double K1_SMALL[] = {
    0.762650113669473885, -0.353155960776544876, -0.122611180822657148, -0.00697572385963986435,
    -0.000173028895751305206, -2.43340614156596823e-6, -2.21338763073472586e-8, -1.41148839263352776e-10,
    -6.66690169419932901e-13, -2.42744985051936593e-15};
static const double K0_LARGE[] = {
    1.22015154103297773, -0.0314481013119645005, 0.00156988388573005337, -0.000128495495816278026,
    0.0000139498137188764994, -1.83175552271911948e-6, 2.76681363944501508e-7, -4.66048989768794767e-8,
    8.57403401741422609e-9, -1.69753450938906152e-9, 3.57739728140032845e-10, -7.95748924447739704e-11,
    1.85594911495492655e-11, -4.51459788337451918e-12, 1.14034058820734423e-12, -2.98009692314817835e-13,
    8.03289077506837437e-14, -2.22751332674629636e-14, 6.34007647627664597e-15, -1.84859337792090717e-15,
    5.51205599940433336e-16, -1.67823112575490064e-16, 5.21039177764355411e-17, -1.64758059398426328e-17};
static const double K1_LARGE[] = {
    1.36031309524222133, 0.103923736576817238, -0.00285781685962277939, 0.000195215518471351631,
    -0.0000193619797416608296, 2.40648494783721712e-6, -3.50196060308781254e-7, 5.74108412545004929e-8,
    -1.0345762465678097e-8, 2.01504975519703462e-9, -4.19035475934192558e-10, 9.21831518760531413e-11,
    -2.12996783842779102e-11, 5.13963967348234354e-12, -1.28917396094982294e-12, 3.34841966605224312e-13,
    -8.97670518201014607e-14, 2.47715442421959868e-14, -7.01983708921476885e-15, 2.03870316623986088e-15,
    -6.05704727064301782e-16, 1.83809357524304543e-16, -5.68946284919364837e-17, 1.79405104788635729e-17};

// ---- modified, first kind -------------------------------------------------------------------------------------------

static hlo_value either(hlo *h, hlo_value x, double limit, hlo_value near, hlo_value far) {
  return hlo_select(h, hlo_le(h, x, K(x, limit)), near, far);
}

// series / sqrt(x) for x > 8 in 8 / x
#define FAR_I(h, x, table) \
  hlo_div(h, PJ_CHEBYSHEV(h, hlo_div(h, K(x, 8), hlo_max(h, x, K(x, 8))), 0, 1, table), hlo_sqrt(h, x))

static hlo_value i0e(hlo *h, hlo_value x) {
  x = hlo_abs(h, x);
  return either(h, x, 8, PJ_CHEBYSHEV(h, x, 0, 8, I0_SMALL), FAR_I(h, x, I0_LARGE));
}

static hlo_value i1e(hlo *h, hlo_value x) {
  hlo_value size = hlo_abs(h, x);
  hlo_value near = hlo_mul(h, size, PJ_CHEBYSHEV(h, size, 0, 8, I1_SMALL));
  return pj_copysign(h, either(h, size, 8, near, FAR_I(h, size, I1_LARGE)), x);
}

// exp(|x|) in two factors: it overflows before its product with the scaled function does.
static hlo_value unscaled(hlo *h, hlo_value x, hlo_value scaled) {
  hlo_value root = hlo_exp(h, hlo_mul(h, hlo_abs(h, x), K(x, 0.5)));
  hlo_value y = hlo_mul(h, hlo_mul(h, scaled, root), root);
  return hlo_select(h, pj_is_inf(h, x), hlo_mul(h, x, hlo_sign(h, scaled)), y);
}

static hlo_value i0(hlo *h, hlo_value x) { return hlo_abs(h, unscaled(h, hlo_abs(h, x), i0e(h, x))); }

static hlo_value i1(hlo *h, hlo_value x) {
  hlo_value size = hlo_abs(h, x);
  return pj_copysign(h, unscaled(h, size, i1e(h, size)), x);
}

// ---- first and second kind ------------------------------------------------------------------------------------------

// sqrt(2 / (pi x)) (p c - q s): the far form of both kinds, with p and q in (8 / x)^2.
static hlo_value far_wave(hlo *h, hlo_value x, hlo_value p, hlo_value q, hlo_value c, hlo_value s) {
  hlo_value size = hlo_sqrt(h, hlo_div(h, K(x, M_2_PI), x));
  hlo_value wave = hlo_sub(h, hlo_mul(h, p, c), hlo_mul(h, hlo_mul(h, hlo_div(h, K(x, 8), x), q), s));
  return hlo_mul(h, size, wave);
}

typedef struct wave { hlo_value p, q, sin, cos; } wave;

// x > 0; the phase is x - order pi / 2 - pi / 4
static wave far_parts(hlo *h, hlo_value x, int order) {
  hlo_value u = pj_square(h, hlo_div(h, K(x, 8), hlo_max(h, x, K(x, 8))));
  hlo_value phase = hlo_sub(h, x, K(x, order ? 3 * M_PI_4 : M_PI_4));
  wave w = {.sin = hlo_sin(h, phase), .cos = hlo_cos(h, phase)};
  w.p = order ? PJ_CHEBYSHEV(h, u, 0, 1, J1_P) : PJ_CHEBYSHEV(h, u, 0, 1, J0_P);
  w.q = order ? PJ_CHEBYSHEV(h, u, 0, 1, J1_Q) : PJ_CHEBYSHEV(h, u, 0, 1, J0_Q);
  return w;
}

static hlo_value near_j(hlo *h, hlo_value x, int order) {
  hlo_value t = hlo_min(h, pj_square(h, x), K(x, 64));
  return order ? hlo_mul(h, x, PJ_CHEBYSHEV(h, t, 0, 64, J1_SMALL)) : PJ_CHEBYSHEV(h, t, 0, 64, J0_SMALL);
}

static hlo_value bessel_j(hlo *h, hlo_value x, int order) {
  hlo_value size = hlo_abs(h, x);
  wave w = far_parts(h, size, order);
  hlo_value y = either(h, size, 8, near_j(h, size, order), far_wave(h, size, w.p, w.q, w.cos, w.sin));
  return order ? hlo_mul(h, y, hlo_sign(h, x)) : y;
}

static hlo_value bessel_y(hlo *h, hlo_value x, int order) {
  hlo_value t = hlo_min(h, pj_square(h, x), K(x, 64));
  hlo_value log_part = hlo_mul(h, hlo_log(h, x), near_j(h, x, order));
  if (order) log_part = hlo_sub(h, log_part, hlo_div(h, K(x, 1), x));
  hlo_value series = order ? hlo_mul(h, x, PJ_CHEBYSHEV(h, t, 0, 64, Y1_SMALL)) : PJ_CHEBYSHEV(h, t, 0, 64, Y0_SMALL);
  hlo_value near = hlo_add(h, series, hlo_mul(h, K(x, M_2_PI), log_part));
  wave w = far_parts(h, x, order);
  hlo_value y = either(h, x, 8, near, far_wave(h, x, w.p, hlo_neg(h, w.q), w.sin, w.cos));
  y = hlo_select(h, hlo_eq(h, x, K(x, 0)), K(x, -INFINITY), y);
  return hlo_select(h, hlo_lt(h, x, K(x, 0)), K(x, NAN), y);
}

static hlo_value bessel_j0(hlo *h, hlo_value x) { return bessel_j(h, x, 0); }
static hlo_value bessel_j1(hlo *h, hlo_value x) { return bessel_j(h, x, 1); }
static hlo_value bessel_y0(hlo *h, hlo_value x) { return bessel_y(h, x, 0); }
static hlo_value bessel_y1(hlo *h, hlo_value x) { return bessel_y(h, x, 1); }

// sin(x) / x
static hlo_value spherical_j0(hlo *h, hlo_value x) {
  hlo_value y = hlo_select(h, hlo_eq(h, x, K(x, 0)), K(x, 1), hlo_div(h, hlo_sin(h, x), x));
  return hlo_select(h, pj_is_inf(h, x), K(x, 0), y);
}

// ---- modified, second kind ------------------------------------------------------------------------------------------

// exp(x) K(x); the series near 0 is that of K itself.
static hlo_value bessel_k(hlo *h, hlo_value x, int order, bool scaled) {
  hlo_value t = hlo_min(h, pj_square(h, x), K(x, 4)), small = hlo_min(h, x, K(x, 2));
  hlo_value half_log = hlo_log(h, hlo_mul(h, x, K(x, 0.5))), near;
  if (order) {
    near = hlo_div(h, PJ_CHEBYSHEV(h, t, 0, 4, K1_SMALL), x);
    near = hlo_add(h, near, hlo_mul(h, half_log, i1(h, small)));
  } else {
    near = hlo_sub(h, PJ_CHEBYSHEV(h, t, 0, 4, K0_SMALL), hlo_mul(h, half_log, i0(h, small)));
  }
  hlo_value u = hlo_div(h, K(x, 2), hlo_max(h, x, K(x, 2)));
  hlo_value series = order ? PJ_CHEBYSHEV(h, u, 0, 1, K1_LARGE) : PJ_CHEBYSHEV(h, u, 0, 1, K0_LARGE);
  hlo_value far = hlo_div(h, series, hlo_sqrt(h, x));
  if (scaled)
    near = hlo_mul(h, near, hlo_exp(h, small));
  else
    far = hlo_mul(h, far, hlo_exp(h, hlo_neg(h, x)));
  hlo_value y = either(h, x, 2, near, far);
  y = hlo_select(h, hlo_eq(h, x, K(x, 0)), K(x, INFINITY), y);
  return hlo_select(h, hlo_lt(h, x, K(x, 0)), K(x, NAN), y);
}

static hlo_value modified_k0(hlo *h, hlo_value x) { return bessel_k(h, x, 0, false); }
static hlo_value modified_k1(hlo *h, hlo_value x) { return bessel_k(h, x, 1, false); }
static hlo_value scaled_k0(hlo *h, hlo_value x) { return bessel_k(h, x, 0, true); }
static hlo_value scaled_k1(hlo *h, hlo_value x) { return bessel_k(h, x, 1, true); }

// X(lowering, formula, ATen name, prims name or the ATen name again)
#define OPS(X) \
  X(i0, i0, "aten::i0", "prims::bessel_i0") \
  X(i0e, i0e, "aten::special_i0e", "prims::bessel_i0e") \
  X(i1, i1, "aten::special_i1", "prims::bessel_i1") \
  X(i1e, i1e, "aten::special_i1e", "prims::bessel_i1e") \
  X(j0, bessel_j0, "aten::special_bessel_j0", "prims::bessel_j0") \
  X(j1, bessel_j1, "aten::special_bessel_j1", "prims::bessel_j1") \
  X(y0, bessel_y0, "aten::special_bessel_y0", "aten::special_bessel_y0") \
  X(y1, bessel_y1, "aten::special_bessel_y1", "aten::special_bessel_y1") \
  X(spherical_j0, spherical_j0, "aten::special_spherical_bessel_j0", "prims::spherical_bessel_j0") \
  X(modified_i0, i0, "aten::special_modified_bessel_i0", "aten::special_modified_bessel_i0") \
  X(modified_i1, i1, "aten::special_modified_bessel_i1", "aten::special_modified_bessel_i1") \
  X(modified_k0, modified_k0, "aten::special_modified_bessel_k0", "aten::special_modified_bessel_k0") \
  X(modified_k1, modified_k1, "aten::special_modified_bessel_k1", "aten::special_modified_bessel_k1") \
  X(scaled_k0, scaled_k0, "aten::special_scaled_modified_bessel_k0", "aten::special_scaled_modified_bessel_k0") \
  X(scaled_k1, scaled_k1, "aten::special_scaled_modified_bessel_k1", "aten::special_scaled_modified_bessel_k1")

#define DEFINE(name, formula, aten, prims) \
  static void lower_##name(pj_lowering *l) { pj_return(l, 0, formula(l->h, pj_as(l, 0, pj_result_math(l, 0)))); }
OPS(DEFINE)

#define ENTRY(name, formula, aten, prims) {aten, lower_##name}, {prims, lower_##name},

PJ_LOWERINGS(bessel_lowerings) = {
    OPS(ENTRY)
    {0},
};
